// q = 0 and V = identity show which keys each row saw.
#include <cmath>
#include <limits>

#include "tests/kernels/conformance/conformance.h"

namespace attendant::testing {
namespace {

using kernels::MaskKind;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

class VisibilityTest : public ConformanceTest {
 protected:
  // q = 0 and V = identity: O * exp(LSE) is the 0/1 row of what was seen.
  void CheckVisibility(
      HostProblem& problem,
      const std::function<bool(int64_t, int64_t, int64_t)>& seen) {
    problem.FillQ([](int64_t, int64_t, int64_t, int64_t) { return 0.0f; });
    problem.FillV([](int64_t, int64_t row, int64_t, int64_t d) {
      return row == d ? 1.0f : 0.0f;
    });
    if (!Run(problem)) return;
    ASSERT_EQ(problem.OutputDamage(), "");
    const kernels::AttentionProblem& p = problem.problem();
    for (int64_t b = 0; b < p.batch; ++b) {
      for (int64_t i = 0; i < p.sequence(b).len_q; ++i) {
        int64_t count = 0;
        for (int64_t j = 0; j < p.sequence(b).len_kv; ++j) {
          count += seen(b, i, j);
        }
        for (int64_t h = 0; h < p.num_q_heads; ++h) {
          const float lse = problem.Lse(b, h, i);
          if (count == 0) {
            EXPECT_EQ(lse, kMinusInfinity) << "row " << i;
          } else {
            EXPECT_NEAR(lse, std::log(static_cast<float>(count)), 1e-5);
          }
          for (int64_t j = 0; j < p.sequence(b).len_kv; ++j) {
            const float out = problem.Out(b, i, h, j);
            if (!seen(b, i, j)) {
              ASSERT_EQ(out, 0) << "row " << i << " saw key " << j << " of "
                                << Describe(problem);
            } else {
              ASSERT_NEAR(out * static_cast<float>(count), 1, 0.01)
                  << "row " << i << " did not see key " << j << " of "
                  << Describe(problem);
            }
          }
        }
      }
    }
  }
};

TEST_P(VisibilityTest, OfCausalAndWindowsInBothAlignments) {
  const int64_t lengths[][2] = {{3, 7},   {7, 3},   {1, 64}, {64, 1},
                                {33, 50}, {64, 64}, {70, 20}};
  const int64_t windows[][2] = {{-1, -1}, {0, 0},   {1, 0},  {2, 0},
                                {0, 1},   {3, 2},   {-1, 2}, {2, -1},
                                {63, 0},  {64, 64}, {65, -1}};
  int64_t turn = 0;
  for (const auto& [len_q, len_kv] : lengths) {
    for (const auto& [left, right] : windows) {
      for (int variant = 0; variant < 4; ++variant) {
        ProblemOptions options;
        options.dtype = dtype(turn++);
        options.seqlen_q = len_q;
        options.seqlen_kv = len_kv;
        options.causal = variant & 1;
        options.bottom_right = variant & 2;
        options.window_left = left;
        options.window_right = right;
        const int64_t shift = options.bottom_right ? len_kv - len_q : 0;
        HostProblem problem(options);
        CheckVisibility(problem, [&, left = left, right = right](
                                     int64_t, int64_t i, int64_t j) {
          return (!options.causal || j <= i + shift) &&
                 (left < 0 || j >= i + shift - left) &&
                 (right < 0 || j <= i + shift + right);
        });
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(VisibilityTest, OfLengthsAndLeftPadding) {
  for (const Layout layout : {Layout::kBshd, Layout::kBhsd, Layout::kThd}) {
    ProblemOptions options;
    options.layout = layout;
    options.dtype = dtype(static_cast<int64_t>(layout));
    options.batch = 4;
    options.num_q_heads = options.num_kv_heads = 2;
    options.seqlen_q = 40;
    options.seqlen_kv = 64;
    options.lens_q = {40, 7, 0, 1};
    options.lens_kv = {64, 9, 33, 17};
    options.skips_q = {0, 11, 40, 0};
    options.skips_kv = {0, 50, 5, 0};
    options.causal = true;
    options.bottom_right = true;
    HostProblem problem(options);
    CheckVisibility(problem, [&](int64_t b, int64_t i, int64_t j) {
      return j <= i + options.lens_kv[b] - options.lens_q[b];
    });
  }
}

TEST_P(VisibilityTest, OfBooleanMasks) {
  for (const MaskKind kind : {MaskKind::kBoolBytes, MaskKind::kBoolBits}) {
    for (const Layout layout : {Layout::kBshd, Layout::kThd}) {
      ProblemOptions options;
      options.layout = layout;
      options.dtype = dtype(static_cast<int64_t>(kind));
      options.batch = 2;
      options.seqlen_q = 21;
      options.seqlen_kv = 61;
      options.lens_q = {21, 13};
      options.lens_kv = {61, 37};
      options.skips_kv = {0, 11};
      options.mask = kind;
      options.mask_per_batch = true;
      HostProblem problem(options);
      const auto attend = [](int64_t b, int64_t i, int64_t j) {
        return i != 5 && (i * 7 + j * 3 + b) % 5 < 2;
      };
      problem.FillMask([&](int64_t b, int64_t, int64_t i, int64_t j) {
        return static_cast<float>(attend(b, i, j));
      });
      CheckVisibility(problem, attend);
    }
  }
}

ATTENDANT_CONFORMANCE_SUITE(VisibilityTest);

}  // namespace
}  // namespace attendant::testing
