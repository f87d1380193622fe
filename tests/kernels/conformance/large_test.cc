// Sizes at which 32-bit arithmetic and grid limits break.
#include "tests/kernels/conformance/conformance.h"

namespace attendant::testing {
namespace {

class LargeTest : public ConformanceTest {};

// More sequences than a grid's second dimension holds.
TEST_P(LargeTest, SeventyThousandSequences) {
  ProblemOptions options;
  options.dtype = dtype(0);
  options.batch = is_gpu() ? 70000 : 2000;
  options.seqlen_q = options.seqlen_kv = is_gpu() ? 16 : 8;
  options.random = false;  // q = 0: the mean of V
  HostProblem problem(options);
  problem.FillV([](int64_t b, int64_t, int64_t, int64_t) {
    return static_cast<float>(b % 127 + 1);
  });
  if (!Run(problem)) return;
  EXPECT_EQ(problem.OutputDamage(), "");
  for (int64_t b = 0; b < options.batch; ++b) {
    const float want = static_cast<float>(b % 127 + 1);
    ASSERT_NEAR(problem.Out(b, 0, 0, 0), want, want * 0.004) << b;
    ASSERT_NEAR(problem.Out(b, options.seqlen_q - 1, 0, 63), want, want * 0.004)
        << b;
  }
}

TEST_P(LargeTest, ManyShortPackedSequencesOfUnequalLengths) {
  ProblemOptions options;
  options.dtype = dtype(0);
  options.layout = Layout::kThd;
  options.batch = is_long() ? 3000 : 300;
  options.num_q_heads = 2;
  options.num_kv_heads = 1;
  RandomBits bits(3);
  for (int64_t b = 0; b < options.batch; ++b) {
    options.lens_q.push_back(bits.Below(20));
    options.lens_kv.push_back(bits.Below(40));
  }
  options.causal = options.bottom_right = true;
  HostProblem problem(options);
  Check(problem);
}

TEST_P(LargeTest, LongSequenceMatchesTheOracleInItsLastRows) {
  // The last rows of a long causal prefill, as a request of their own.
  ProblemOptions options;
  options.dtype = dtype(0);
  options.head_dim = 128;
  options.seqlen_q = 40;
  options.seqlen_kv = is_gpu() ? 131072 : 20000;
  options.causal = options.bottom_right = true;
  HostProblem problem(options);
  Check(problem);
}

// More tiles than a launch has thread blocks at a time, checked in samples.
TEST_P(LargeTest, ManyTilesInOneLaunch) {
  const int64_t seqlen = is_gpu() ? 2048 : 300;
  std::vector<HostProblem> problems;
  for (int64_t n = 0; n < 8; ++n) {
    ProblemOptions options;
    options.dtype = dtype(n);
    options.seed = n;
    options.batch = n % 2 == 0 ? 4 : 3;
    options.head_dim = n < 2   ? 64
                       : n < 4 ? 128
                       : n < 5 ? 256
                       : n < 6 ? 192
                               : 72;
    if (n == 5) options.head_dim_v = 128;
    options.num_kv_heads = n == 3 ? 2 : 4;
    options.num_q_heads = n == 3 ? 16 : 4;
    options.causal = n % 2 == 0;
    options.seqlen_q = options.seqlen_kv = seqlen + n;
    if (n == 6) {  // decode over many keys
      options.seqlen_q = 2;
      options.seqlen_kv = 16 * seqlen;
      options.bottom_right = true;
    }
    if (n == 7) {  // unequal packed sequences
      options.layout = Layout::kThd;
      options.batch = 40;
      RandomBits bits(n);
      for (int64_t b = 0; b < options.batch; ++b) {
        options.lens_q.push_back(1 + bits.Below(seqlen));
        options.lens_kv.push_back(options.lens_q.back());
      }
      options.causal = true;
    }
    problems.emplace_back(options);
  }
  const std::vector<HostProblem*> served = Served(problems);
  const absl::Status status = RunGrouped(kernel(), served);
  ASSERT_TRUE(status.ok()) << status;
  for (const HostProblem* problem : served) {
    EXPECT_TRUE(MatchesOracleInSamples(*problem, is_gpu() ? 12 : 4));
  }
}

// Elements past 2^31 and bytes past 2^32, by strides.
TEST_P(LargeTest, OffsetsThatDoNotFit32Bits) {
  if (!is_gpu()) {
    GTEST_SKIP() << "tens of gigabytes; the CPU's offsets are 64-bit pointers";
  }
  struct Case {
    Layout layout;
    int64_t num_heads, len_q, len_kv, spread;
    bool causal;
  };
  for (const Case& c :
       {Case{Layout::kBshd, 1, 2200, 2200, (int64_t{1} << 20) + 64, true},
        Case{Layout::kBhsd, 3, 200, 200, int64_t{1100} << 20, false},
        Case{Layout::kBshd, 2, 3, 2200, (int64_t{1} << 20) + 64, true}}) {
    ProblemOptions options;
    options.dtype = dtype(0);
    options.layout = c.layout;
    options.num_q_heads = options.num_kv_heads = c.num_heads;
    options.head_dim = 128;
    options.seqlen_q = c.len_q;
    options.seqlen_kv = c.len_kv;
    options.causal = options.bottom_right = c.causal;
    HostProblem problem(options);
    RunOptions spread;
    spread.spread = c.spread;
    Check(problem, spread);
  }
}

ATTENDANT_CONFORMANCE_SUITE(LargeTest);

}  // namespace
}  // namespace attendant::testing
