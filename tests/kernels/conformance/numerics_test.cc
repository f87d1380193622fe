// Logits that tricks get wrong: lazy rescaling, sentinels, polynomials for exp.
#include <cmath>

#include "tests/kernels/conformance/conformance.h"

namespace attendant::testing {
namespace {

using kernels::DataType;

constexpr float kLn2 = 0.69314718f;

class NumericsTest : public ConformanceTest {
 protected:
  // S of row i and key j is about `logit(i, j)`: q holds a one-hot row index,
  // k the row's logit there. head_dim rows at most.
  template <typename Logit>
  HostProblem WithLogits(ProblemOptions options, const Logit& logit) {
    options.softmax_scale = 1.0f;
    HostProblem problem(options);
    problem.FillQ([](int64_t, int64_t row, int64_t, int64_t d) {
      return row == d ? 1.0f : 0.0f;
    });
    problem.FillK([&](int64_t, int64_t row, int64_t, int64_t d) {
      return d < options.seqlen_q ? logit(d, row) : 0.0f;
    });
    return problem;
  }
};

TEST_P(NumericsTest, MaximumThatRisesOrFallsByBlocks) {
  std::vector<HostProblem> problems;
  int64_t turn = 0;
  for (const int64_t block : {32, 64, 80, 112, 128, 176}) {
    for (const float step : {7.99f, 8.0f, 8.01f, -8.01f, 1.0f}) {
      if (!is_long() && ++turn % 2 == 0) continue;
      ProblemOptions options;
      // bf16 cannot tell 7.99 from 8: its steps come out of the rounding.
      options.dtype = dtype(turn);
      options.head_dim = block == 80 ? 256 : 64;
      options.seqlen_q = 16;
      options.seqlen_kv = block * (is_long() ? 24 : 9);
      problems.push_back(
          WithLogits(options, [&](int64_t row, int64_t key) -> float {
            const float blocks = static_cast<float>(key / block);
            // One row rises, fifteen stay flat: rows of one tile differ.
            return row == 3 ? blocks * step * kLn2 : 0.25f * (key % 5);
          }));
      problems.push_back(
          WithLogits(options, [&](int64_t row, int64_t key) -> float {
            const float blocks = static_cast<float>(key / block);
            const float sign = row % 2 == 0 ? 1.0f : -1.0f;
            return sign * blocks * step * kLn2 + 0.125f * (key % 3);
          }));
    }
  }
  CheckGrouped(problems);
}

TEST_P(NumericsTest, SpikesFirstLastAndAlternating) {
  std::vector<HostProblem> problems;
  for (int variant = 0; variant < 5; ++variant) {
    for (const DataType type : dtypes()) {
      for (const int64_t len_q : {1, 33}) {
        ProblemOptions options;
        options.dtype = type;
        options.head_dim = variant == 4 ? 128 : 64;
        options.seqlen_q = len_q;
        options.seqlen_kv = 700;
        problems.push_back(
            WithLogits(options, [&](int64_t row, int64_t key) -> float {
              switch (variant) {
                case 0:  // one spike in the last block
                  return key == 690 ? 100.0f : 0.5f * (key % 3);
                case 1:  // the first block far above the rest
                  return key < 64 ? 300.0f + (key % 2) : 0.0f;
                case 2:
                  return (key / 64) % 2 == 0 ? 40.0f : -40.0f;
                case 3:  // a maximum at every power of two
                  return (key & (key - 1)) == 0 ? 0.03125f * key : -5.0f;
                default:  // decreasing row by row
                  return -0.25f * static_cast<float>(key / 8) +
                         0.5f * static_cast<float>(row);
              }
            }));
      }
    }
  }
  CheckGrouped(problems);
}

// No finite "minus infinity": differences of logits near -100000 count.
TEST_P(NumericsTest, AllLogitsFarBelowZero) {
  for (const DataType type : dtypes()) {
    for (const bool causal : {false, true}) {
      ProblemOptions options;
      options.dtype = type;
      options.seqlen_q = 70;
      options.seqlen_kv = 140;
      options.causal = causal;
      options.softmax_scale = 1.0f;
      HostProblem problem(options);
      problem.FillQ([](int64_t, int64_t, int64_t, int64_t d) {
        return d == 0 ? -8192.0f : d == 1 ? 1.0f : 0.0f;
      });
      problem.FillK([](int64_t, int64_t row, int64_t, int64_t d) {
        return d == 0   ? 12.25f
               : d == 1 ? 0.5f * static_cast<float>(row % 6)
                        : 0.0f;
      });
      Check(problem);
      double sum = 0;  // of the last row, by hand
      for (int64_t j = 0; j < (causal ? 70 : 140); ++j) {
        sum += std::exp(0.5 * static_cast<double>(j % 6));
      }
      if (!Serves(kernel(), problem)) continue;
      EXPECT_NEAR(problem.Lse(0, 0, 69), -100352 + std::log(sum), 0.02);
    }
  }
}

TEST_P(NumericsTest, LogitsThatUnderflowAndOnesThatDoNot) {
  std::vector<HostProblem> problems;
  for (const DataType type : dtypes()) {
    for (const float scale : {3.0f, 0.5f, 1e-3f, -2.0f, 1e-30f}) {
      ProblemOptions options;
      options.dtype = type;
      options.head_dim = 128;
      options.num_q_heads = 3;
      options.num_kv_heads = 1;
      options.seqlen_q = 40;
      options.seqlen_kv = 200;
      options.softmax_scale = scale;
      problems.emplace_back(options);
    }
  }
  CheckGrouped(problems);
}

// Rows of several heads share a tile when a group is packed into it.
TEST_P(NumericsTest, OneRisingHeadOfAGroup) {
  std::vector<HostProblem> problems;
  int64_t turn = 0;
  for (const int64_t group : {3, 5, 7, 8}) {
    for (const int64_t len_q : {1, 2, 9}) {
      ProblemOptions options;
      options.dtype = dtype(turn++);
      options.num_q_heads = group;
      options.num_kv_heads = 1;
      options.head_dim = 64;
      options.seqlen_q = len_q;
      options.seqlen_kv = 1024;
      options.softmax_scale = 1.0f;
      HostProblem problem(options);
      problem.FillQ([&](int64_t, int64_t row, int64_t head, int64_t d) {
        return head == group / 2 && row == len_q - 1 && d == 0 ? 1.0f
               : d == 1                                        ? 1.0f
                                                               : 0.0f;
      });
      problem.FillK([](int64_t, int64_t row, int64_t, int64_t d) {
        if (d == 0) return static_cast<float>(row / 64) * 8.01f * kLn2;
        return d == 1 ? 0.25f * static_cast<float>(row % 7) : 0.0f;
      });
      problems.push_back(std::move(problem));
    }
  }
  CheckGrouped(problems);
}

// fp16's P must not overflow however far the running maximum lags behind.
TEST_P(NumericsTest, Fp16AtTheLaziestMaximum) {
  for (const DataType type : dtypes()) {
    for (const float step : {7.875f, 8.0f}) {
      ProblemOptions options;
      options.dtype = type;
      options.seqlen_q = 64;
      options.seqlen_kv = 512;
      HostProblem problem =
          WithLogits(options, [&](int64_t row, int64_t key) -> float {
            return key < 128 ? 0.0f : step * kLn2 * (row % 2 ? 1.0f : 0.5f);
          });
      problem.FillV([](int64_t, int64_t row, int64_t, int64_t) {
        return row % 2 == 0 ? 1.0f : -1.5f;
      });
      Check(problem);
    }
  }
}

// fp16's subnormal numbers are numbers.
TEST_P(NumericsTest, TinyValues) {
  std::vector<HostProblem> problems;
  for (const DataType type : dtypes()) {
    ProblemOptions options;
    options.dtype = type;
    options.seqlen_q = 20;
    options.seqlen_kv = 100;
    HostProblem problem(options);
    NormalGenerator normal(5);
    problem.FillV([&](int64_t, int64_t, int64_t, int64_t d) {
      return normal.Next() * (d % 2 == 0 ? 0x1p-18f : 0x1p-12f);
    });
    problems.push_back(std::move(problem));
  }
  CheckGrouped(problems);
}

TEST_P(NumericsTest, LargeValuesAddUpInFp32) {
  for (const DataType type : dtypes()) {
    ProblemOptions options;
    options.dtype = type;
    options.seqlen_q = 20;
    options.seqlen_kv = 2000;
    HostProblem problem(options);
    problem.FillV([](int64_t, int64_t row, int64_t, int64_t d) {
      return d == 0 ? 1.0f : row % 2 == 0 ? 30000.0f : 29000.0f;
    });
    if (!Run(problem)) continue;
    EXPECT_TRUE(MatchesOracle(problem));
    EXPECT_NEAR(problem.Out(0, 0, 0, 0), 1.0f, 0.004);
  }
}

ATTENDANT_CONFORMANCE_SUITE(NumericsTest);

}  // namespace
}  // namespace attendant::testing
