#include "tests/testing/tensor_matchers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/testing/attention_runner.h"

namespace attendant::testing {
namespace {

using kernels::DataType;

HostProblem Answered(DataType dtype) {
  ProblemOptions options;
  options.dtype = dtype;
  options.num_q_heads = 2;
  options.num_kv_heads = 2;
  options.seqlen_q = 9;
  options.seqlen_kv = 33;
  options.causal = true;
  HostProblem problem(options);
  EXPECT_TRUE(RunAlone(kPlainKernel, problem).ok());
  return problem;
}

class MatchesOracleTest : public ::testing::TestWithParam<DataType> {};

TEST_P(MatchesOracleTest, AcceptsThePlainImplementation) {
  EXPECT_TRUE(MatchesOracle(Answered(GetParam())));
}

TEST_P(MatchesOracleTest, RejectsOneWrongElement) {
  HostProblem problem = Answered(GetParam());
  const float value = problem.Out(0, 8, 1, 0);
  kernels::StoreFromFloat(
      problem.problem().out.data, GetParam(),
      8 * problem.problem().out.row_stride + problem.problem().out.head_stride,
      value + 0.05f);
  EXPECT_FALSE(MatchesOracle(problem));
}

TEST_P(MatchesOracleTest, SamplesSeeTheFirstAndTheLastRows) {
  for (const int64_t row : {0, 8}) {
    HostProblem problem = Answered(GetParam());
    EXPECT_TRUE(MatchesOracleInSamples(problem, 8));
    kernels::StoreFromFloat(problem.problem().out.data, GetParam(),
                            row * problem.problem().out.row_stride,
                            problem.Out(0, row, 0, 0) + 0.1f);
    EXPECT_FALSE(MatchesOracleInSamples(problem, 8));
  }
}

TEST_P(MatchesOracleTest, RejectsNaNAndAWrongLse) {
  HostProblem problem = Answered(GetParam());
  problem.problem().lse[3] += 0.01f;
  EXPECT_FALSE(MatchesOracle(problem));
  problem = Answered(GetParam());
  kernels::StoreFromFloat(problem.problem().out.data, GetParam(), 0,
                          std::numeric_limits<float>::quiet_NaN());
  EXPECT_FALSE(MatchesOracle(problem));
}

INSTANTIATE_TEST_SUITE_P(Types, MatchesOracleTest,
                         ::testing::Values(DataType::kFloat32,
                                           DataType::kFloat16,
                                           DataType::kBFloat16));

}  // namespace
}  // namespace attendant::testing
