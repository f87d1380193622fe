// The sm90 kernel on a Hopper GPU against the oracle: tails of every tile
// class, masks by bounds, packed sequences, and what must not change a bit.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/testing/attention_runner.h"
#include "tests/testing/host_problem.h"
#include "tests/testing/tensor_matchers.h"

namespace attendant::testing {
namespace {

using kernels::DataType;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

class Sm90Test : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string why_not = WhyCannotRun("sm90");
    if (!why_not.empty()) GTEST_SKIP() << why_not;
  }

  // Each problem alone against the oracle, then all in one launch: same bits.
  static void Check(const std::vector<ProblemOptions>& list) {
    std::vector<std::unique_ptr<HostProblem>> problems;
    std::vector<HostProblem*> pointers;
    for (const ProblemOptions& options : list) {
      problems.push_back(std::make_unique<HostProblem>(options));
      pointers.push_back(problems.back().get());
    }
    CheckProblems(pointers);
  }

  static void CheckProblems(const std::vector<HostProblem*>& problems) {
    const std::vector<Expectation> expectations = ExpectationsOf(problems);
    std::vector<std::vector<uint8_t>> alone;
    for (size_t i = 0; i < problems.size(); ++i) {
      const absl::Status status = RunAlone("sm90", *problems[i]);
      ASSERT_TRUE(status.ok()) << status << " " << Describe(*problems[i]);
      EXPECT_TRUE(Matches(*problems[i], expectations[i]))
          << Describe(*problems[i]);
      alone.push_back(problems[i]->AnswerBytes());
    }
    if (problems.size() == 1) return;
    const absl::Status status = RunGrouped("sm90", problems);
    ASSERT_TRUE(status.ok()) << status;
    for (size_t i = 0; i < problems.size(); ++i) {
      EXPECT_TRUE(SameAnswer(*problems[i], alone[i]))
          << "grouped, " << Describe(*problems[i]);
    }
  }
};

ProblemOptions Bf16(int64_t head_dim, int64_t seqlen_q, int64_t seqlen_kv) {
  ProblemOptions options;
  options.dtype = DataType::kBFloat16;
  options.head_dim = head_dim;
  options.num_q_heads = 2;
  options.num_kv_heads = 2;
  options.seqlen_q = seqlen_q;
  options.seqlen_kv = seqlen_kv;
  options.seed = head_dim * 1000003 + seqlen_q * 1009 + seqlen_kv;
  return options;
}

TEST_F(Sm90Test, OneTileOfEachClass) {
  for (const DataType dtype : {DataType::kBFloat16, DataType::kFloat16}) {
    for (const int64_t d : {64, 128, 192, 256}) {
      ProblemOptions options = Bf16(d, 64, 80);
      options.dtype = dtype;
      Check({options});
    }
    ProblemOptions options = Bf16(192, 128, 128);
    options.head_dim_v = 128;
    options.dtype = dtype;
    Check({options});
  }
}

TEST_F(Sm90Test, TailsOfEveryClass) {
  for (const int64_t d : {64, 128, 192, 256}) {
    std::vector<ProblemOptions> list;
    for (const int64_t sq : {1, 63, 65, 128, 129, 193, 300}) {
      for (const int64_t sk :
           {1, 15, 17, 79, 81, 112, 113, 127, 128, 129, 255, 257, 500}) {
        list.push_back(Bf16(d, sq, sk));
        list.back().causal = (sq + sk) % 2 == 0;
        list.back().bottom_right = sq % 3 == 0;
      }
    }
    Check(list);
  }
}

TEST_F(Sm90Test, DiagonalAtEveryOffset) {
  for (const int64_t d : {64, 128, 192, 256}) {
    std::vector<ProblemOptions> list;
    for (const int64_t shift :
         {1, 63, 64, 65, 79, 80, 81, 111, 112, 127, 640}) {
      for (const bool longer_kv : {false, true}) {
        list.push_back(longer_kv ? Bf16(d, 257, 257 + shift)
                                 : Bf16(d, 257 + shift, 257));
        list.back().causal = true;
        list.back().bottom_right = true;
      }
    }
    Check(list);
  }
}

TEST_F(Sm90Test, WindowsOfEverySize) {
  for (const int64_t d : {64, 128, 256}) {
    std::vector<ProblemOptions> list;
    for (const int64_t left : {-1, 0, 1, 63, 128, 200}) {
      for (const int64_t right : {-1, 0, 5, 127, 300}) {
        list.push_back(Bf16(d, 333, 410));
        list.back().window_left = left;
        list.back().window_right = right;
        list.back().bottom_right = left % 2 == 0;
      }
    }
    Check(list);
  }
}

TEST_F(Sm90Test, OddHeadDims) {
  std::vector<ProblemOptions> list;
  for (const int64_t d :
       {8, 16, 40, 72, 80, 96, 104, 112, 136, 160, 200, 248}) {
    list.push_back(Bf16(d, 150, 210));
    list.back().causal = true;
  }
  for (const auto& [d, dv] : std::vector<std::pair<int64_t, int64_t>>{
           {64, 256}, {40, 80}, {128, 64}, {192, 128}, {8, 256}, {256, 8}}) {
    list.push_back(Bf16(d, 150, 210));
    list.back().head_dim_v = dv;
  }
  Check(list);
}

TEST_F(Sm90Test, GroupsOfQueryHeads) {
  std::vector<ProblemOptions> list;
  for (const int64_t group : {1, 2, 3, 7, 8, 16}) {
    list.push_back(Bf16(128, 130, 140));
    list.back().num_q_heads = 2 * group;
    list.back().causal = group % 2 == 0;
    list.back().batch = 2;
  }
  Check(list);
}

TEST_F(Sm90Test, LayoutsAndOutputs) {
  std::vector<ProblemOptions> list;
  for (const Layout layout : {Layout::kBshd, Layout::kBhsd, Layout::kThd}) {
    for (const DataType output : {DataType::kBFloat16, DataType::kFloat32}) {
      list.push_back(Bf16(128, 200, 200));
      list.back().layout = layout;
      list.back().output_dtype = output;
      list.back().batch = 3;
      list.back().lens_q = {200, 7, 129};
      list.back().lens_kv = {150, 200, 1};
      list.back().lse = output == DataType::kFloat32;
    }
  }
  list.push_back(Bf16(64, 100, 100));
  list.back().layout = Layout::kPackedQkv;
  list.push_back(Bf16(64, 100, 100));
  list.back().row_gap = 8;
  list.back().base_offset = 8;
  Check(list);
}

TEST_F(Sm90Test, ZeroLengths) {
  std::vector<ProblemOptions> list;
  for (const Layout layout : {Layout::kBshd, Layout::kThd}) {
    list.push_back(Bf16(128, 128, 128));
    list.back().layout = layout;
    list.back().batch = 6;
    list.back().lens_q = {0, 5, 0, 128, 128, 0};
    list.back().lens_kv = {0, 5, 7, 0, 128, 0};
  }
  list.push_back(Bf16(128, 130, 0));
  Check(list);
}

TEST_F(Sm90Test, ScoreModifications) {
  std::vector<ProblemOptions> list;
  for (const int64_t d : {64, 128, 192, 256}) {
    ProblemOptions options = Bf16(d, 190, 270);
    options.causal = true;
    options.bottom_right = true;
    list.push_back(options);
    list.back().softcap = 5.0f;
    list.push_back(options);
    list.back().alibi = true;
    list.push_back(options);
    list.back().alibi = true;
    list.back().softcap = 2.0f;
    list.back().sinks = true;
    list.push_back(options);
    list.back().softmax_scale = 0.0f;
    list.push_back(options);
    list.back().softmax_scale = -0.2f;
    list.push_back(options);
    list.back().sinks = true;
  }
  Check(list);
}

TEST_F(Sm90Test, NanInMaskedPositionsDoesNotLeak) {
  for (const int64_t d : {64, 128, 256}) {
    ProblemOptions options = Bf16(d, 200, 200);
    options.causal = true;
    HostProblem problem(options);
    for (int64_t c = 0; c < d; ++c) {
      problem.SetK(0, 190, 0, c, kNan);
      problem.SetV(0, 190, 0, c, c % 2 ? kNan : kInf);
      problem.SetV(0, 70, 1, c, kInf);
    }
    CheckProblems({&problem});
  }
}

TEST_F(Sm90Test, NeighboursThatHoldNanChangeNoBit) {
  ProblemOptions options = Bf16(128, 0, 0);
  options.layout = Layout::kThd;
  options.batch = 3;
  options.lens_q = {100, 130, 77};
  options.lens_kv = {129, 143, 200};
  options.causal = true;
  options.bottom_right = true;
  HostProblem clean(options);
  ASSERT_TRUE(RunAlone("sm90", clean).ok());
  HostProblem dirty(options);
  for (const int64_t b : {0, 2}) {
    for (int64_t row = 0; row < 77; ++row) {
      for (int64_t c = 0; c < 128; ++c) {
        dirty.SetQ(b, row, 0, c, row % 2 ? kNan : 3e38f);
        dirty.SetK(b, row, 0, c, kNan);
        dirty.SetV(b, row, 0, c, kNan);
      }
    }
  }
  ASSERT_TRUE(RunAlone("sm90", dirty).ok());
  for (int64_t row = 0; row < 130; ++row) {
    for (int64_t head = 0; head < 2; ++head) {
      ASSERT_EQ(clean.Lse(1, head, row), dirty.Lse(1, head, row)) << row;
      for (int64_t c = 0; c < 128; ++c) {
        ASSERT_EQ(clean.Out(1, row, head, c), dirty.Out(1, row, head, c))
            << row << " " << c;
      }
    }
  }
}

TEST_F(Sm90Test, RisingMaximaRescaleEachRowAlone) {
  for (const float rise : {7.99f, 8.0f, 8.01f, 100.0f}) {
    ProblemOptions options = Bf16(128, 64, 1024);
    options.softmax_scale = 0.6931471805599453f;  // logits in log2 units
    HostProblem problem(options);
    problem.FillQ([](int64_t, int64_t row, int64_t, int64_t d) {
      return d == 0 && row % 16 == 3 ? 1.0f : 0.0f;
    });
    problem.FillK([&](int64_t, int64_t row, int64_t head, int64_t d) {
      if (d != 0) return 0.0f;
      const float block = static_cast<float>(row / 128);
      return rise * (head == 0 ? block : 7 - block);
    });
    CheckProblems({&problem});
  }
}

TEST_F(Sm90Test, CutOrWholeSameBits) {
  ProblemOptions options = Bf16(128, 300, 300);
  options.batch = 2;
  options.num_q_heads = 8;
  options.num_kv_heads = 4;
  options.causal = true;
  HostProblem problem(options);
  ASSERT_TRUE(RunAlone("sm90", problem).ok());
  const std::vector<uint8_t> whole = problem.AnswerBytes();
  RunOptions cut;
  cut.cut_batch = 1;
  cut.cut_kv_heads = 1;
  ASSERT_TRUE(RunAlone("sm90", problem, cut).ok());
  EXPECT_TRUE(SameAnswer(problem, whole));
}

// Chunks folded in one block, in another's order of items, by a cluster (up to
// 8 items of 256 keys) or by the combining kernel: many sequences at once
// against each alone.
TEST_F(Sm90Test, DecodeCutOrWholeSameBits) {
  for (const int64_t head_dim : {64, 128}) {
    for (const int64_t len_kv : {700, 1900, 2300}) {
      for (const int64_t len_q : {1, 4, 16}) {
        ProblemOptions options = Bf16(head_dim, len_q, len_kv);
        options.batch = 20;
        options.num_q_heads = 32;
        options.num_kv_heads = 4;
        HostProblem problem(options);
        ASSERT_TRUE(RunAlone("sm90", problem).ok());
        const std::vector<uint8_t> whole = problem.AnswerBytes();
        for (const int64_t batch : {1, 7}) {
          RunOptions cut;
          cut.cut_batch = batch;
          cut.cut_kv_heads = batch == 1 ? 1 : 3;
          ASSERT_TRUE(RunAlone("sm90", problem, cut).ok());
          EXPECT_TRUE(SameAnswer(problem, whole))
              << len_q << " rows, " << len_kv << " keys, head size "
              << head_dim;
        }
      }
    }
  }
}

// An item and the tail that was cut off it (see DecodeTails), whichever is done
// first: with few free multiprocessors the items all are. Strands that are one
// item, and strands of several; cut in half there are no tails.
TEST_F(Sm90Test, ItemsMeetTheirTailsInEitherOrder) {
  const int64_t num_sms = PropertiesFor("sm90").num_sms;
  for (const auto& [batch, len_kv] :
       {std::pair<int64_t, int64_t>{num_sms * 15 / 8, 1100},
        {num_sms * 15 / 8, 2048},
        {num_sms * 15 / 32, 16384}}) {
    for (const int64_t head_dim : {64, 128}) {
      if (head_dim == 128 && len_kv > 2048) continue;  // much memory
      ProblemOptions options = Bf16(head_dim, 1, len_kv);
      options.batch = batch;
      options.num_q_heads = 8;
      options.num_kv_heads = 1;
      HostProblem problem(options);
      HostProblem* pointer = &problem;
      auto runner = AttentionRunner::Create("sm90", {&pointer, 1});
      ASSERT_TRUE(runner.ok()) << runner.status();
      RunOptions cut;
      cut.cut_batch = batch / 2;
      ASSERT_TRUE(RunAlone("sm90", problem, cut).ok());
      const std::vector<uint8_t> uncut = problem.AnswerBytes();
      for (int i = 0; i < 100; ++i) {
        ASSERT_TRUE((*runner)->Run().ok());
        ASSERT_TRUE(SameAnswer(problem, uncut)) << len_kv << " keys";
      }
      const absl::Status status =
          (*runner)->RunBesideHeldMultiprocessors(num_sms - 8);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_TRUE(SameAnswer(problem, uncut)) << len_kv << " keys, 8 free";
    }
  }
}

TEST_F(Sm90Test, ThousandDecodeRunsOneAnswer) {
  for (const int64_t len_q : {1, 4, 16}) {
    // 8 and 12 chunks: a cluster and the combining kernel, if many rows.
    for (const int64_t len_kv : {2000, 3000}) {
      ProblemOptions options = Bf16(128, len_q, len_kv);
      options.batch = 3;
      options.num_q_heads = 16;
      options.num_kv_heads = 2;
      HostProblem problem(options);
      HostProblem* pointer = &problem;
      auto runner = AttentionRunner::Create("sm90", {&pointer, 1});
      ASSERT_TRUE(runner.ok()) << runner.status();
      ASSERT_TRUE((*runner)->Run().ok());
      const std::vector<uint8_t> first = problem.AnswerBytes();
      for (int i = 1; i < 1000; ++i) {
        ASSERT_TRUE((*runner)->Run().ok());
        ASSERT_EQ(first, problem.AnswerBytes())
            << len_q << " rows, " << len_kv << " keys, run " << i;
      }
    }
  }
}

TEST_F(Sm90Test, ThousandRunsOneAnswer) {
  ProblemOptions options = Bf16(128, 700, 700);
  options.num_q_heads = 4;
  options.num_kv_heads = 4;
  options.causal = true;
  HostProblem problem(options);
  HostProblem* pointer = &problem;
  auto runner = AttentionRunner::Create("sm90", {&pointer, 1});
  ASSERT_TRUE(runner.ok()) << runner.status();
  ASSERT_TRUE((*runner)->Run().ok());
  const std::vector<uint8_t> first = problem.AnswerBytes();
  for (int i = 1; i < 1000; ++i) {
    ASSERT_TRUE((*runner)->Run().ok());
    ASSERT_EQ(first, problem.AnswerBytes()) << i;
  }
}

}  // namespace
}  // namespace attendant::testing
