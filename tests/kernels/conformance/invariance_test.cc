// An answer depends on its own sequence alone: not on neighbours, cuts,
// threads, layouts, repetition or whatever memory held before. All bit for bit.
#include <algorithm>
#include <atomic>
#include <thread>

#include "kernels/row_cut.h"
#include "tests/kernels/conformance/conformance.h"

namespace attendant::testing {
namespace {

using kernels::DataType;
using kernels::MaskKind;

// A dozen unlike requests: prefill, decode, padded, packed, masked.
std::vector<ProblemOptions> Subjects(const std::vector<DataType>& dtypes) {
  std::vector<ProblemOptions> subjects(12);
  for (size_t n = 0; n < subjects.size(); ++n) {
    ProblemOptions& options = subjects[n];
    options.seed = 77 + n;
    options.dtype = dtypes[n % dtypes.size()];
    options.num_q_heads = 4;
    options.num_kv_heads = 2;
    options.head_dim = 128;
    options.seqlen_q = 150;
    options.seqlen_kv = 150;
  }
  subjects[0].causal = true;
  subjects[1].head_dim = 64;
  subjects[2].seqlen_q = 1;  // decode, keys split
  subjects[2].seqlen_kv = 3000;
  subjects[2].num_q_heads = 16;
  subjects[3].seqlen_q = 5;
  subjects[3].seqlen_kv = 1500;
  subjects[3].causal = subjects[3].bottom_right = true;
  subjects[4].batch = 3;
  subjects[4].lens_q = {150, 20, 1};
  subjects[4].lens_kv = {33, 150, 140};
  subjects[5].layout = Layout::kThd;
  subjects[5].batch = 3;
  subjects[5].lens_q = {100, 1, 37};
  subjects[5].lens_kv = {50, 1200, 37};
  subjects[6].mask = MaskKind::kBoolBits;
  subjects[6].mask_per_head = true;
  subjects[7].head_dim = 72;
  subjects[7].alibi = subjects[7].sinks = true;
  subjects[8].head_dim = 256;
  subjects[8].causal = true;
  subjects[8].window_left = 40;
  subjects[9].head_dim = 192;
  subjects[9].head_dim_v = 128;
  subjects[9].softcap = 20;
  subjects[10].mask = MaskKind::kAdditive;
  subjects[10].batch = 2;
  subjects[10].mask_per_batch = true;
  subjects[11].layout = Layout::kBhsd;
  subjects[11].num_q_heads = 7;
  subjects[11].num_kv_heads = 1;
  subjects[11].seqlen_q = 3;
  return subjects;
}

class InvarianceTest : public ConformanceTest {
 protected:
  std::vector<HostProblem> ServedSubjects() {
    std::vector<HostProblem> all, served;
    for (const ProblemOptions& options : Subjects(dtypes())) {
      all.emplace_back(options);
    }
    for (HostProblem* problem : Served(all)) {
      served.push_back(std::move(*problem));
    }
    return served;
  }
};

TEST_P(InvarianceTest, NeighboursDoNotChangeABit) {
  std::vector<HostProblem> subjects = ServedSubjects();
  std::vector<std::vector<uint8_t>> alone;
  for (HostProblem& subject : subjects) {
    ASSERT_TRUE(Run(subject));
    EXPECT_TRUE(MatchesOracle(subject));
    alone.push_back(subject.AnswerBytes());
  }
  std::vector<HostProblem> strangers;
  for (int64_t n = 0; n < 31; ++n) {
    RandomBits bits(n);
    ProblemOptions options;
    options.seed = n;
    options.dtype = dtype(n);
    options.num_kv_heads = 1 + bits.Below(2);
    options.num_q_heads = options.num_kv_heads * (1 + bits.Below(4));
    options.head_dim = bits.Below(2) ? 128 : 8 * (1 + bits.Below(32));
    options.batch = 1 + bits.Below(3);
    options.seqlen_q = bits.Below(3) == 0 ? 1 : bits.Below(200);
    options.seqlen_kv = bits.Below(300);
    options.causal = bits.Below(2);
    strangers.emplace_back(options);
  }
  const std::vector<HostProblem*> all_strangers = Served(strangers);
  const int64_t orderings = is_long() ? 100 : 10;
  for (int64_t round = 0; round < orderings; ++round) {
    RandomBits bits(500 + round);
    std::vector<HostProblem*> group = all_strangers;
    for (size_t n = group.size(); n > 1; --n) {
      std::swap(group[n - 1], group[bits.Below(n)]);
    }
    group.resize(std::min<size_t>(group.size(), 1 + bits.Below(31)));
    for (HostProblem& subject : subjects) {
      group.insert(group.begin() + bits.Below(group.size() + 1), &subject);
    }
    const absl::Status status = RunGrouped(kernel(), group);
    ASSERT_TRUE(status.ok()) << status;
    for (size_t n = 0; n < subjects.size(); ++n) {
      ASSERT_TRUE(SameAnswer(subjects[n], alone[n]))
          << "in ordering " << round << " of " << group.size();
    }
  }
}

// What a request that arrives in parts is cut into.
TEST_P(InvarianceTest, CutsAtRowStepsDoNotChangeABit) {
  for (int64_t n = 0; n < 8; ++n) {
    ProblemOptions options;
    options.seed = 900 + n;
    options.dtype = dtype(n);
    options.num_kv_heads = 1 + n % 2;
    options.num_q_heads = options.num_kv_heads * (n == 5 ? 3 : 1);
    options.head_dim = n % 4 == 1 ? 64 : (n == 6 ? 192 : (n == 7 ? 72 : 128));
    options.seqlen_q = 2 * kernels::kRowCutStep + (n % 3) * 131;
    options.seqlen_kv = n == 2 ? 3000 : options.seqlen_q;
    options.causal = n != 3;
    options.bottom_right = n == 2;
    if (n == 4) options.window_left = 300;
    if (n == 3) options.softcap = 20;
    if (n == 6) options.alibi = options.sinks = true;
    if (n == 1) options.lens_q = {options.seqlen_q - 100};
    std::vector<HostProblem> all;
    all.emplace_back(options);
    if (Served(all).empty()) continue;
    HostProblem& subject = all[0];
    ASSERT_TRUE(Run(subject));
    const std::vector<uint8_t> whole = subject.AnswerBytes();
    RunOptions cut;
    cut.cut_rows = kernels::kRowCutStep;
    ASSERT_TRUE(Run(subject, cut));
    ASSERT_TRUE(SameAnswer(subject, whole)) << "case " << n;
  }
}

TEST_P(InvarianceTest, CutsAtBatchAndKvHeadBordersDoNotChangeABit) {
  std::vector<HostProblem> subjects = ServedSubjects();
  for (HostProblem& subject : subjects) {
    ASSERT_TRUE(Run(subject));
    const std::vector<uint8_t> whole = subject.AnswerBytes();
    for (const auto& [batch, kv_heads] :
         {std::pair<int64_t, int64_t>{0, 1}, {1, 0}, {1, 1}, {2, 0}, {2, 2}}) {
      RunOptions cut;
      cut.cut_batch = batch;
      cut.cut_kv_heads = kv_heads;
      ASSERT_TRUE(Run(subject, cut));
      ASSERT_TRUE(SameAnswer(subject, whole))
          << "cut by " << batch << " and " << kv_heads;
    }
  }
}

// More sequences than multiprocessors, not twice as many.
TEST_P(InvarianceTest, AnUnevenLastRoundDoesNotChangeABit) {
  for (const int64_t len_kv : {1100, 2048}) {
    ProblemOptions options;
    options.dtype = dtype(len_kv);
    options.batch = is_gpu() ? PropertiesFor(kernel()).num_sms * 15 / 8 : 5;
    options.num_q_heads = 4;
    options.num_kv_heads = 1;
    options.seqlen_q = 1;
    options.seqlen_kv = len_kv;
    options.sinks = true;
    HostProblem problem(options);
    if (!Run(problem)) continue;
    EXPECT_TRUE(MatchesOracle(problem));
    const std::vector<uint8_t> whole = problem.AnswerBytes();
    const RunOptions cut = {.cut_batch = options.batch / 2};
    ASSERT_TRUE(Run(problem, cut));
    ASSERT_TRUE(SameAnswer(problem, whole)) << len_kv << " keys";
  }
}

TEST_P(InvarianceTest, ManyKvHeadsCutUnevenly) {
  for (const int64_t len_q : {1, 100}) {
    ProblemOptions options;
    options.dtype = dtype(len_q);
    options.batch = 3;
    options.num_q_heads = 24;
    options.num_kv_heads = 8;
    options.head_dim = 128;
    options.seqlen_q = len_q;
    options.seqlen_kv = 700;
    options.lens_kv = {700, 128, 699};
    options.alibi = true;
    options.alibi_per_batch = true;
    options.sinks = true;
    HostProblem problem(options);
    if (!Run(problem)) continue;
    EXPECT_TRUE(MatchesOracle(problem));
    const std::vector<uint8_t> whole = problem.AnswerBytes();
    for (const int64_t kv_heads : {1, 3, 5, 7}) {
      RunOptions cut;
      cut.cut_batch = 1 + kv_heads % 2;
      cut.cut_kv_heads = kv_heads;
      ASSERT_TRUE(Run(problem, cut));
      ASSERT_TRUE(SameAnswer(problem, whole)) << "cut by " << kv_heads;
    }
  }
}

TEST_P(InvarianceTest, ThreadCountsDoNotChangeABit) {
  if (is_gpu()) GTEST_SKIP() << "a thread pool is the CPU's";
  std::vector<HostProblem> subjects = ServedSubjects();
  for (HostProblem& subject : subjects) {
    std::vector<uint8_t> answer;
    for (const int threads : {1, 2, 3, 16}) {
      RunOptions options;
      options.num_threads = threads;
      ASSERT_TRUE(Run(subject, options));
      if (answer.empty()) answer = subject.AnswerBytes();
      ASSERT_TRUE(SameAnswer(subject, answer)) << threads << " threads";
    }
  }
}

TEST_P(InvarianceTest, RepeatedRunsHaveOneHash) {
  std::vector<HostProblem> subjects = ServedSubjects();
  std::vector<HostProblem*> group;
  for (HostProblem& subject : subjects) group.push_back(&subject);
  auto runner = AttentionRunner::Create(kernel(), group);
  ASSERT_TRUE(runner.ok()) << runner.status();
  std::vector<std::vector<uint8_t>> first;
  const int64_t runs = rounds(1000, 5);
  for (int64_t run = 0; run < runs; ++run) {
    const absl::Status status = (*runner)->Run();
    ASSERT_TRUE(status.ok()) << status;
    for (size_t n = 0; n < group.size(); ++n) {
      if (run == 0) {
        first.push_back(group[n]->AnswerBytes());
      } else {
        ASSERT_TRUE(SameAnswer(*group[n], first[n])) << "run " << run;
      }
    }
  }
}

// A persistent kernel may not count on all of its blocks being there at once.
TEST_P(InvarianceTest, FewFreeMultiprocessorsAreEnough) {
  if (!is_gpu()) GTEST_SKIP() << "a CPU has no multiprocessors";
  std::vector<HostProblem> subjects = ServedSubjects();
  std::vector<HostProblem*> group;
  for (HostProblem& subject : subjects) group.push_back(&subject);
  auto runner = AttentionRunner::Create(kernel(), group);
  ASSERT_TRUE(runner.ok()) << runner.status();
  const absl::Status free_run = (*runner)->Run();
  ASSERT_TRUE(free_run.ok()) << free_run;
  std::vector<std::vector<uint8_t>> answers;
  for (HostProblem* subject : group) answers.push_back(subject->AnswerBytes());
  const int held = PropertiesFor(kernel()).num_sms - 32;
  if (held <= 0) GTEST_SKIP() << "a GPU of 32 multiprocessors or fewer";
  const absl::Status status = (*runner)->RunBesideHeldMultiprocessors(held);
  ASSERT_TRUE(status.ok()) << status;
  for (size_t n = 0; n < group.size(); ++n) {
    ASSERT_TRUE(SameAnswer(*group[n], answers[n])) << held << " held";
  }
}

TEST_P(InvarianceTest, LaunchesSideBySideDoNotChangeABit) {
  constexpr int kThreads = 4;
  std::vector<std::vector<HostProblem>> copies;
  for (int thread = 0; thread < kThreads; ++thread) {
    copies.push_back(ServedSubjects());
  }
  std::atomic<int> failures = 0;
  {
    std::vector<std::jthread> threads;
    for (std::vector<HostProblem>& copy : copies) {
      threads.emplace_back([&, launches = rounds(50, 2)] {
        std::vector<HostProblem*> group;
        for (HostProblem& subject : copy) group.push_back(&subject);
        auto runner = AttentionRunner::Create(kernel(), group);
        for (int64_t round = 0; round < launches; ++round) {
          failures += !runner.ok() || !(*runner)->Run().ok();
        }
      });
    }
  }
  EXPECT_EQ(failures, 0);
  for (size_t n = 0; n < copies[0].size(); ++n) {
    ASSERT_TRUE(Run(copies[0][n]));
    for (int thread = 1; thread < kThreads; ++thread) {
      ASSERT_TRUE(SameAnswer(copies[thread][n], copies[0][n]));
    }
  }
}

// The same sequences alone, right-padded, left-padded, packed, as BHSD.
TEST_P(InvarianceTest, PaddingAndLayoutsDoNotChangeABit) {
  for (const DataType type : dtypes()) {
    ProblemOptions options;
    options.dtype = type;
    options.num_q_heads = 4;
    options.num_kv_heads = 2;
    options.seqlen_q = 77;
    options.seqlen_kv = 141;
    options.causal = options.bottom_right = true;
    HostProblem alone(options);
    if (!Run(alone)) continue;
    EXPECT_TRUE(MatchesOracle(alone));
    for (int variant = 0; variant < 4; ++variant) {
      ProblemOptions other = options;
      other.batch = 2;
      other.layout = variant == 2   ? Layout::kThd
                     : variant == 3 ? Layout::kBhsd
                                    : Layout::kBshd;
      other.seqlen_q = 100;
      other.seqlen_kv = 200;
      other.lens_q = {50, 77};
      other.lens_kv = {199, 141};
      if (variant == 1) {
        other.skips_q = {0, 23};
        other.skips_kv = {1, 59};
      }
      HostProblem problem(other);
      const kernels::AttentionProblem& p = alone.problem();
      const auto copy = [&](const kernels::InputTensor& from, int64_t rows,
                            int64_t heads, auto&& set) {
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t h = 0; h < heads; ++h) {
            for (int64_t d = 0; d < 64; ++d) {
              set(row, h, d,
                  kernels::LoadAsFloat(
                      from.data, p.dtype,
                      row * from.row_stride + h * from.head_stride + d));
            }
          }
        }
      };
      copy(p.q, 77, 4, [&](int64_t i, int64_t h, int64_t d, float value) {
        problem.SetQ(1, i, h, d, value);
      });
      copy(p.k, 141, 2, [&](int64_t j, int64_t h, int64_t d, float value) {
        problem.SetK(1, j, h, d, value);
      });
      copy(p.v, 141, 2, [&](int64_t j, int64_t h, int64_t d, float value) {
        problem.SetV(1, j, h, d, value);
      });
      ASSERT_TRUE(Run(problem));
      EXPECT_TRUE(MatchesOracle(problem));
      for (int64_t i = 0; i < 77; ++i) {
        for (int64_t h = 0; h < 4; ++h) {
          ASSERT_EQ(problem.Lse(1, h, i), alone.Lse(0, h, i)) << variant;
          for (int64_t d = 0; d < 64; ++d) {
            ASSERT_EQ(problem.Out(1, i, h, d), alone.Out(0, i, h, d))
                << "variant " << variant << " row " << i << " head " << h;
          }
        }
      }
    }
  }
}

// Requests that differ in one property, by turns: nothing sticks.
TEST_P(InvarianceTest, AlternatingRequestsAreEachRight) {
  std::vector<HostProblem> problems;
  for (int variant = 0; variant < 8; ++variant) {
    ProblemOptions options;
    options.dtype = dtype(variant == 1 ? 1 : 0);
    options.head_dim = variant == 2 ? 72 : 64;
    options.causal = variant == 3;
    options.row_gap = variant == 4 ? 8 : 0;
    options.layout = variant == 5 ? Layout::kBhsd : Layout::kBshd;
    options.softcap = variant == 6 ? 4.0f : 0.0f;
    options.num_q_heads = options.num_kv_heads = 2;
    options.seqlen_q = variant == 7 ? 1 : 90;
    options.seqlen_kv = 140;
    problems.emplace_back(options);
  }
  const std::vector<HostProblem*> served = Served(problems);
  const std::vector<Expectation> expectations = ExpectationsOf(served);
  const int64_t turns = rounds(25, 3);
  for (int64_t round = 0; round < turns; ++round) {
    for (size_t n = 0; n < served.size(); ++n) {
      ASSERT_TRUE(Run(*served[n]));
      ASSERT_TRUE(Matches(*served[n], expectations[n])) << "round " << round;
    }
  }
}

ATTENDANT_CONFORMANCE_SUITE(InvarianceTest);

}  // namespace
}  // namespace attendant::testing
