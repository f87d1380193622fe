// NaN and infinity: what is masked or padded never shows, what is seen stays.
#include <cmath>
#include <limits>

#include "tests/kernels/conformance/conformance.h"

namespace attendant::testing {
namespace {

using kernels::DataType;
using kernels::MaskKind;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

float Huge(DataType dtype) {
  return dtype == DataType::kFloat16 ? 60000.0f : 3e38f;
}

class PoisonTest : public ConformanceTest {
 protected:
  // sm80 redoes a row beside a hidden NaN key by key; sm90 and the CPU leave
  // the bits that zeros in the hidden places give.
  bool repair_rounds_otherwise() const { return kernel() == "sm80"; }

  // Runs `options` with K and V 0, then NaN, infinity and huge at the keys that
  // `hidden` names (which no row sees). All bits must be equal, unless
  // `may_repair` and sm80's repair may have rounded otherwise, within
  // tolerance.
  void CheckHidden(const ProblemOptions& options, bool may_repair,
                   const std::function<void(HostProblem&)>& prepare,
                   const std::function<bool(int64_t b, int64_t j)>& hidden) {
    std::vector<uint8_t> zero_answer;
    for (const float value :
         {0.0f, kNaN, kInfinity, -kInfinity, Huge(options.dtype)}) {
      HostProblem problem(options);
      if (prepare) prepare(problem);
      const kernels::AttentionProblem& p = problem.problem();
      for (int64_t b = 0; b < p.batch; ++b) {
        for (int64_t j = 0; j < options.seqlen_kv; ++j) {
          if (!hidden(b, j)) continue;
          for (int64_t h = 0; h < p.num_kv_heads; ++h) {
            for (int64_t d = 0; d < p.head_dim; ++d) {
              problem.SetK(b, j, h, d, value);
            }
            for (int64_t d = 0; d < p.head_dim_v; ++d) {
              problem.SetV(b, j, h, d, value);
            }
          }
        }
      }
      if (!Run(problem)) return;
      ASSERT_TRUE(MatchesOracle(problem)) << "hidden keys hold " << value;
      if (zero_answer.empty()) zero_answer = problem.AnswerBytes();
      if (may_repair && repair_rounds_otherwise()) continue;
      ASSERT_TRUE(SameAnswer(problem, zero_answer))
          << "hidden keys hold " << value;
    }
  }
};

TEST_P(PoisonTest, KeysPastTheLength) {
  int64_t turn = 0;
  for (const int64_t len_kv : {1, 15, 17, 63, 65, 127, 129, 200}) {
    for (const int64_t len_q : {1, 70}) {
      ProblemOptions options;
      options.dtype = dtype(turn++);
      options.head_dim = turn % 2 == 0 ? 64 : 128;
      options.num_q_heads = 2;
      options.num_kv_heads = 1;
      options.seqlen_q = len_q;
      options.seqlen_kv = 256;
      options.lens_kv = {len_kv};
      CheckHidden(options, /*may_repair=*/false, nullptr,
                  [&](int64_t, int64_t j) { return j >= len_kv; });
    }
  }
}

TEST_P(PoisonTest, KeysBehindTheDiagonalOfAllRows) {
  for (const DataType type : dtypes()) {
    ProblemOptions options;
    options.dtype = type;
    options.num_q_heads = 2;
    options.num_kv_heads = 2;
    options.seqlen_q = 100;
    options.seqlen_kv = 160;
    options.causal = true;
    CheckHidden(options, /*may_repair=*/true, nullptr,
                [](int64_t, int64_t j) { return j >= 100; });
    options.causal = false;
    options.window_left = 3;
    options.bottom_right = true;
    CheckHidden(options, /*may_repair=*/true, nullptr,
                [](int64_t, int64_t j) { return j < 57; });
  }
}

TEST_P(PoisonTest, KeysThatABooleanMaskHides) {
  for (const MaskKind kind : {MaskKind::kBoolBytes, MaskKind::kBoolBits}) {
    for (const DataType type : dtypes()) {
      ProblemOptions options;
      options.dtype = type;
      options.head_dim = 128;
      options.seqlen_q = 70;
      options.seqlen_kv = 150;
      options.mask = kind;
      const auto hidden = [](int64_t, int64_t j) {
        return j % 7 == 3 || j == 149 || (j >= 64 && j < 128);
      };
      CheckHidden(
          options, /*may_repair=*/true,
          [&](HostProblem& problem) {
            problem.FillMask([&](int64_t, int64_t, int64_t, int64_t j) {
              return static_cast<float>(!hidden(0, j));
            });
          },
          hidden);
    }
  }
}

// Row i sees V[i]; rows before it must not feel what V[i] holds.
TEST_P(PoisonTest, ValuesOnTheDiagonalReachOnlyRowsThatSeeThem) {
  for (const DataType type : dtypes()) {
    for (const int64_t key : {1, 40, 66, 129, 149}) {
      for (const float value : {kNaN, kInfinity}) {
        ProblemOptions options;
        options.dtype = type;
        options.num_q_heads = options.num_kv_heads = 2;
        options.seqlen_q = options.seqlen_kv = 150;
        options.causal = true;
        options.window_left = 90;
        options.seed = key;
        HostProblem clean(options), problem(options);
        problem.SetV(0, key, 1, 9, value);
        if (!Run(clean) || !Run(problem)) continue;
        ASSERT_TRUE(MatchesOracle(problem)) << "poison at key " << key;
        for (int64_t i = 0; i < 150; ++i) {
          for (int64_t h = 0; h < 2; ++h) {
            EXPECT_EQ(problem.Lse(0, h, i), clean.Lse(0, h, i));
            for (int64_t d = 0; d < 64; ++d) {
              const bool seen = h == 1 && d == 9 && i >= key && i <= key + 90;
              const float out = problem.Out(0, i, h, d);
              if (seen) {
                ASSERT_FALSE(std::isfinite(out)) << "row " << i;
              } else if (!repair_rounds_otherwise()) {
                ASSERT_EQ(out, clean.Out(0, i, h, d))
                    << "row " << i << " head " << h << " dim " << d
                    << ", poison at key " << key;
              }
            }
          }
        }
      }
    }
  }
}

TEST_P(PoisonTest, NaNInOneKeyReachesOnlyRowsAndHeadsThatSeeIt) {
  for (const DataType type : dtypes()) {
    for (const int64_t len_q : {1, 130}) {
      ProblemOptions options;
      options.dtype = type;
      options.num_q_heads = 8;
      options.num_kv_heads = 4;
      options.seqlen_q = len_q;
      options.seqlen_kv = 130;
      options.causal = options.bottom_right = true;
      std::vector<HostProblem> problems;
      for (int n = 0; n < 3; ++n) problems.emplace_back(options);
      HostProblem clean(options);
      problems[1].SetK(0, 100, 3, 5, kNaN);
      if (!Run(clean)) continue;
      const absl::Status status = RunGrouped(kernel(), Served(problems));
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_TRUE(SameAnswer(problems[0], clean)) << "a neighbour's NaN";
      EXPECT_TRUE(SameAnswer(problems[2], clean)) << "a neighbour's NaN";
      for (int64_t i = 0; i < len_q; ++i) {
        for (int64_t h = 0; h < 8; ++h) {
          const bool seen = h / 2 == 3 && 100 <= i + 130 - len_q;
          for (int64_t d = 0; d < 64; ++d) {
            const float out = problems[1].Out(0, i, h, d);
            if (seen) {
              ASSERT_TRUE(std::isnan(out)) << "row " << i << " head " << h;
            } else {
              ASSERT_EQ(out, clean.Out(0, i, h, d))
                  << "row " << i << " head " << h;
            }
          }
          const float lse = problems[1].Lse(0, h, i);
          if (seen) {
            EXPECT_TRUE(std::isnan(lse));
          } else {
            EXPECT_EQ(lse, clean.Lse(0, h, i));
          }
        }
      }
    }
  }
}

TEST_P(PoisonTest, NaNInOneQueryRowStaysInIt) {
  for (const DataType type : dtypes()) {
    ProblemOptions options;
    options.dtype = type;
    options.num_q_heads = 6;
    options.num_kv_heads = 2;
    options.seqlen_q = 40;
    options.seqlen_kv = 90;
    HostProblem clean(options), problem(options);
    problem.SetQ(0, 17, 4, 3, kNaN);
    if (!Run(clean) || !Run(problem)) continue;
    for (int64_t i = 0; i < 40; ++i) {
      for (int64_t h = 0; h < 6; ++h) {
        if (i == 17 && h == 4) {
          EXPECT_TRUE(std::isnan(problem.Out(0, i, h, 0)));
          EXPECT_TRUE(std::isnan(problem.Lse(0, h, i)));
        } else {
          EXPECT_EQ(problem.Out(0, i, h, 0), clean.Out(0, i, h, 0));
          EXPECT_EQ(problem.Lse(0, h, i), clean.Lse(0, h, i));
        }
      }
    }
  }
}

// The next sequence's rows lie in the same tile.
TEST_P(PoisonTest, PackedNeighboursDoNotShow) {
  int64_t turn = 0;
  for (const int64_t tail : {1, 15, 16, 17}) {
    for (const bool causal : {false, true}) {
      ProblemOptions options;
      options.dtype = dtype(turn++);
      options.layout = Layout::kThd;
      options.batch = 3;
      options.num_q_heads = 4;
      options.num_kv_heads = 2;
      options.head_dim = turn % 2 == 0 ? 128 : 64;
      options.lens_q = {48 + tail, 64 + tail, 33};
      options.lens_kv = {64 + tail, 32 + tail, 70};
      options.causal = causal;
      HostProblem clean(options);
      if (!Run(clean)) continue;
      EXPECT_TRUE(MatchesOracle(clean));
      for (const float value : {kNaN, kInfinity, Huge(options.dtype)}) {
        HostProblem dirty(options);
        const auto fill = [&](int64_t, int64_t, int64_t, int64_t) {
          return value;
        };
        // All of sequence 1; the two beside it must not change by a bit.
        for (int64_t h = 0; h < 4; ++h) {
          for (int64_t d = 0; d < options.head_dim; ++d) {
            for (int64_t i = 0; i < options.lens_q[1]; ++i) {
              dirty.SetQ(1, i, h, d, fill(1, i, h, d));
            }
            for (int64_t j = 0; j < options.lens_kv[1] && h < 2; ++j) {
              dirty.SetK(1, j, h, d, fill(1, j, h, d));
              dirty.SetV(1, j, h, d, fill(1, j, h, d));
            }
          }
        }
        ASSERT_TRUE(Run(dirty));
        for (const int64_t b : {0, 2}) {
          for (int64_t i = 0; i < options.lens_q[b]; ++i) {
            for (int64_t h = 0; h < 4; ++h) {
              ASSERT_EQ(dirty.Lse(b, h, i), clean.Lse(b, h, i));
              for (int64_t d = 0; d < options.head_dim; ++d) {
                ASSERT_EQ(dirty.Out(b, i, h, d), clean.Out(b, i, h, d))
                    << "sequence " << b << " row " << i << " beside " << value;
              }
            }
          }
        }
      }
    }
  }
}

TEST_P(PoisonTest, QueryRowsPastTheLengthDoNotShow) {
  for (const DataType type : dtypes()) {
    for (const float value : {kNaN, kInfinity, Huge(type)}) {
      ProblemOptions options;
      options.dtype = type;
      options.batch = 2;
      options.num_q_heads = 4;
      options.num_kv_heads = 1;
      options.seqlen_q = 64;
      options.seqlen_kv = 70;
      options.lens_q = {33, 1};
      HostProblem clean(options), dirty(options);
      for (int64_t d = 0; d < 64; ++d) {
        for (int64_t i = 33; i < 64; ++i) dirty.SetQ(0, i, 2, d, value);
        for (int64_t i = 1; i < 64; ++i) dirty.SetQ(1, i, 2, d, value);
      }
      if (!Run(clean) || !Run(dirty)) continue;
      EXPECT_TRUE(MatchesOracle(dirty));
      EXPECT_TRUE(SameAnswer(dirty, clean));
    }
  }
}

ATTENDANT_CONFORMANCE_SUITE(PoisonTest);

}  // namespace
}  // namespace attendant::testing
