// Answers known by hand: q = 0 makes every visible key weigh the same.
#include <cmath>
#include <limits>

#include "tests/kernels/conformance/conformance.h"

namespace attendant::testing {
namespace {

using kernels::DataType;
using kernels::MaskKind;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

float Zero(int64_t, int64_t, int64_t, int64_t) { return 0; }

class ProbesTest : public ConformanceTest {
 protected:
  // One head; O of each row, V[j] = j + 1.
  void CheckCounts(ProblemOptions options, const std::vector<float>& want,
                   const std::vector<float>& want_lse = {}) {
    options.head_dim = 64;
    HostProblem problem(options);
    problem.FillQ(Zero);
    problem.FillV([](int64_t, int64_t row, int64_t, int64_t) {
      return static_cast<float>(row + 1);
    });
    if (!Run(problem)) return;
    for (size_t i = 0; i < want.size(); ++i) {
      for (int64_t d = 0; d < 64; ++d) {
        ASSERT_NEAR(problem.Out(0, i, 0, d), want[i], want[i] * 0.004)
            << Describe(problem);
      }
    }
    for (size_t i = 0; i < want_lse.size(); ++i) {
      if (std::isinf(want_lse[i])) {
        EXPECT_EQ(problem.Lse(0, 0, i), want_lse[i]);
      } else {
        EXPECT_NEAR(problem.Lse(0, 0, i), want_lse[i], 1e-6);
      }
    }
  }
};

TEST_P(ProbesTest, CountsOfBothAlignments) {
  const float ln2 = std::log(2.0f), ln3 = std::log(3.0f);
  for (const DataType type : dtypes()) {
    ProblemOptions options;
    options.dtype = type;
    options.causal = true;
    options.seqlen_q = 2;
    options.seqlen_kv = 5;
    CheckCounts(options, {1, 1.5}, {0, ln2});
    options.bottom_right = true;
    CheckCounts(options, {2.5, 3}, {std::log(4.0f), std::log(5.0f)});
    options.seqlen_q = 5;
    options.seqlen_kv = 2;
    CheckCounts(options, {0, 0, 0, 1, 1.5},
                {kMinusInfinity, kMinusInfinity, kMinusInfinity, 0, ln2});
    options.bottom_right = false;
    CheckCounts(options, {1, 1.5, 1.5, 1.5, 1.5}, {0, ln2, ln2, ln2, ln2});
    options.causal = false;
    options.seqlen_q = options.seqlen_kv = 5;
    options.window_left = 1;
    options.window_right = 0;
    CheckCounts(options, {1, 1.5, 2.5, 3.5, 4.5}, {0, ln2, ln2, ln2, ln2});
    options.window_left = 2;
    CheckCounts(options, {1, 1.5, 2, 3, 4}, {0, ln2, ln3, ln3, ln3});
  }
}

TEST_P(ProbesTest, ScaleIsOfTheTrueHeadDim) {
  for (const DataType type : dtypes()) {
    ProblemOptions options;
    options.dtype = type;
    options.head_dim = 80;
    options.seqlen_kv = 2;
    HostProblem problem(options);
    problem.FillQ([](int64_t, int64_t, int64_t, int64_t d) {
      return d == 0 ? std::sqrt(80.0f) * std::log(3.0f) : 0.0f;
    });
    problem.FillK([](int64_t, int64_t row, int64_t, int64_t d) {
      return row == 0 && d == 0 ? 1.0f : 0.0f;
    });
    problem.FillV([](int64_t, int64_t row, int64_t, int64_t) {
      return row == 0 ? 1.0f : 0.0f;
    });
    if (!Run(problem)) continue;
    EXPECT_NEAR(problem.Out(0, 0, 0, 79), 0.75, 0.004);
    EXPECT_NEAR(problem.Lse(0, 0, 0), std::log(4.0f), 0.004);
  }
}

TEST_P(ProbesTest, LseIsNaturalAndWithoutTheSink) {
  for (const DataType type : dtypes()) {
    ProblemOptions options;
    options.dtype = type;
    options.seqlen_kv = 8;
    HostProblem eight(options);
    eight.FillQ(Zero);
    if (!Run(eight)) continue;
    EXPECT_NEAR(eight.Lse(0, 0, 0), 2.0794415f, 1e-6);
    options.seqlen_kv = 3;
    options.sinks = true;
    HostProblem three(options);
    three.FillQ(Zero);
    three.FillV([](int64_t, int64_t, int64_t, int64_t) { return 4.0f; });
    three.sinks()[0] = 0;
    if (!Run(three)) continue;
    EXPECT_NEAR(three.Out(0, 0, 0, 0), 3, 1e-6);
    EXPECT_NEAR(three.Lse(0, 0, 0), std::log(3.0f), 1e-6);
  }
}

TEST_P(ProbesTest, SoftcapBendsLogits) {
  for (const int64_t seqlen_q : {1, 64}) {
    for (const DataType type : dtypes()) {
      ProblemOptions options;
      options.dtype = type;
      options.seqlen_q = seqlen_q;
      options.seqlen_kv = 2;
      options.softmax_scale = 1.0f;
      options.softcap = 1.0f;
      HostProblem problem(options);
      problem.FillQ([](int64_t, int64_t, int64_t, int64_t d) {
        return d == 0 ? 10.0f : 0.0f;
      });
      problem.FillK([](int64_t, int64_t row, int64_t, int64_t d) {
        return row == 0 && d == 0 ? 10.0f : 0.0f;
      });
      problem.FillV([](int64_t, int64_t row, int64_t, int64_t) {
        return row == 0 ? 1.0f : 0.0f;
      });
      if (!Run(problem)) continue;
      EXPECT_NEAR(problem.Out(0, seqlen_q - 1, 0, 3), 0.7310586, 0.003);
    }
  }
}

// S = mask + (cap tanh(scale q k / cap) - slope |i + shift - j|), by hand.
TEST_P(ProbesTest, CapThenAlibiThenMask) {
  const auto mask_at = [](int64_t b, int64_t h, int64_t i, int64_t j) {
    return j == 2
               ? -1.0f
               : 0.25f * static_cast<float>(i) + 0.5f * static_cast<float>(h) -
                     0.75f * static_cast<float>(b);
  };
  const std::vector<float> slopes = {0.5f, 0.125f, 0.25f, 0.75f};
  for (const DataType type : dtypes()) {
    for (const bool bottom_right : {false, true}) {
      ProblemOptions options;
      options.dtype = type;
      options.batch = 2;
      options.num_q_heads = options.num_kv_heads = 2;
      options.seqlen_q = 4;
      options.seqlen_kv = 8;
      options.lens_q = {3, 3};
      options.lens_kv = {6, 6};
      options.skips_q = {0, 1};
      options.skips_kv = {2, 1};
      options.bottom_right = bottom_right;
      options.softmax_scale = 0.5f;
      options.softcap = 2.0f;
      options.alibi = options.alibi_per_batch = true;
      options.mask = MaskKind::kAdditive;
      options.mask_per_batch = options.mask_per_head = true;
      HostProblem problem(options);
      problem.slopes() = slopes;
      problem.problem().alibi_slopes = problem.slopes();
      problem.FillQ([](int64_t, int64_t, int64_t, int64_t d) {
        return d == 0 ? 4.0f : 0.0f;
      });
      problem.FillK([](int64_t, int64_t row, int64_t, int64_t d) {
        return d == 0 ? 0.5f * static_cast<float>(row) : 0.0f;
      });
      problem.FillMask(mask_at);
      if (!Run(problem)) continue;
      for (int64_t row = 0; row < 12; ++row) {
        const int64_t b = row / 6, h = row / 3 % 2, i = row % 3;
        double sum = 0;
        for (int64_t j = 0; j < 6; ++j) {
          const double raw = 0.5 * 4.0 * 0.5 * static_cast<double>(j);
          const double distance =
              std::abs(static_cast<double>(i + (bottom_right ? 3 : 0) - j));
          sum += std::exp(2.0 * std::tanh(raw / 2.0) -
                          slopes[2 * b + h] * distance + mask_at(b, h, i, j));
        }
        EXPECT_NEAR(problem.Lse(b, h, i), std::log(sum), 1e-5)
            << "sequence " << b << " head " << h << " row " << i;
      }
    }
  }
}

TEST_P(ProbesTest, QueryHeadsReadTheirOwnKvHead) {
  const int64_t heads[][2] = {{32, 8}, {6, 2},  {71, 1}, {5, 5},
                              {12, 4}, {14, 2}, {64, 8}, {128, 1}};
  int64_t turn = 0;
  for (const auto& [num_q_heads, num_kv_heads] : heads) {
    for (const int64_t seqlen_q : {1, 3, 17}) {
      ProblemOptions options;
      options.dtype = dtype(turn++);
      options.num_q_heads = num_q_heads;
      options.num_kv_heads = num_kv_heads;
      options.seqlen_q = seqlen_q;
      options.seqlen_kv = 19;
      HostProblem problem(options);
      problem.FillV([](int64_t, int64_t, int64_t head, int64_t) {
        return static_cast<float>(head + 1);
      });
      if (!Run(problem)) continue;
      for (int64_t h = 0; h < num_q_heads; ++h) {
        for (int64_t i = 0; i < seqlen_q; ++i) {
          const float want =
              static_cast<float>(h / (num_q_heads / num_kv_heads) + 1);
          ASSERT_NEAR(problem.Out(0, i, h, 5), want, want * 0.01)
              << Describe(problem);
        }
      }
    }
  }
}

TEST_P(ProbesTest, OneTrueInAMaskPicksThatRowOfV) {
  for (const MaskKind kind : {MaskKind::kBoolBytes, MaskKind::kBoolBits}) {
    ProblemOptions options;
    options.dtype = dtype(0);
    options.seqlen_q = 5;
    options.seqlen_kv = 130;
    options.mask = kind;
    HostProblem problem(options);
    problem.FillMask([](int64_t, int64_t, int64_t i, int64_t j) {
      return static_cast<float>(j == 31 * i + 3);
    });
    if (!Run(problem)) continue;
    const kernels::AttentionProblem& p = problem.problem();
    for (int64_t i = 0; i < 5; ++i) {
      for (int64_t d = 0; d < 64; ++d) {
        EXPECT_EQ(problem.Out(0, i, 0, d),
                  kernels::LoadAsFloat(p.v.data, p.dtype,
                                       (31 * i + 3) * p.v.row_stride + d));
      }
    }
  }
}

TEST_P(ProbesTest, OneKeyGivesItsValueBitForBit) {
  int64_t turn = 0;
  for (const int64_t head_dim : {5, 64, 72, 128, 192, 256}) {
    for (const int64_t len_q : {1, 100}) {
      ProblemOptions options;
      options.dtype = dtype(turn++);
      options.num_q_heads = 3;
      options.head_dim = head_dim;
      options.seqlen_q = len_q;
      HostProblem problem(options);
      if (!Run(problem)) continue;
      const kernels::AttentionProblem& p = problem.problem();
      for (int64_t i = 0; i < len_q; ++i) {
        for (int64_t d = 0; d < head_dim; ++d) {
          ASSERT_EQ(problem.Out(0, i, 2, d),
                    kernels::LoadAsFloat(p.v.data, p.dtype, d))
              << Describe(problem);
        }
      }
    }
  }
}

TEST_P(ProbesTest, ScaleZeroIsTheMeanAndANegativeScaleNegatesQ) {
  for (const DataType type : dtypes()) {
    ProblemOptions options;
    options.dtype = type;
    options.seqlen_q = 3;
    options.seqlen_kv = 4;
    options.softmax_scale = 0.0f;
    HostProblem mean(options);
    mean.FillV([](int64_t, int64_t row, int64_t, int64_t) {
      return static_cast<float>(row);
    });
    if (!Run(mean)) continue;
    EXPECT_NEAR(mean.Out(0, 2, 0, 1), 1.5, 0.006);
    options.seqlen_q = 70;
    options.seqlen_kv = 150;
    options.softmax_scale = -0.125f;
    HostProblem negative(options);
    Check(negative);
    options.softmax_scale = 0.125f;
    HostProblem positive(options);
    const kernels::AttentionProblem& p = negative.problem();
    positive.FillQ([&](int64_t, int64_t row, int64_t, int64_t d) {
      return -kernels::LoadAsFloat(p.q.data, p.dtype, row * p.q.row_stride + d);
    });
    Check(positive);
  }
}

ATTENDANT_CONFORMANCE_SUITE(ProbesTest);

}  // namespace
}  // namespace attendant::testing
