#include "tests/testing/host_problem.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/reference/oracle.h"

namespace attendant::testing {
namespace {

ProblemOptions SmallOptions(Layout layout) {
  ProblemOptions options;
  options.layout = layout;
  options.batch = 2;
  options.num_q_heads = 4;
  options.num_kv_heads = 2;
  options.head_dim = 8;
  options.seqlen_q = options.seqlen_kv = 5;
  options.row_gap = 3;
  options.head_gap = 1;
  return options;
}

class HostProblemTest : public ::testing::TestWithParam<Layout> {};

TEST_P(HostProblemTest, PoisonsWhatNoSequenceOwns) {
  HostProblem problem(SmallOptions(GetParam()));
  int64_t finite = 0;
  for (GuardedBuffer* buffer : problem.inputs()) {
    const auto* values = reinterpret_cast<const float*>(buffer->data());
    for (int64_t n = 0; n < buffer->size() / 4; ++n) {
      finite += std::isfinite(values[n]);
    }
  }
  EXPECT_EQ(finite, 2 * 5 * (4 + 2 + 2) * 8);
}

TEST_P(HostProblemTest, NoticesAWriteIntoAStrideGap) {
  HostProblem problem(SmallOptions(GetParam()));
  kernels::reference::Plain(problem.problem());
  EXPECT_EQ(problem.OutputDamage(), "");
  static_cast<float*>(problem.problem().out.data)[8] = 0;  // head or row gap
  EXPECT_NE(problem.OutputDamage(), "");
}

TEST_P(HostProblemTest, NoticesARowThatWasNotWritten) {
  HostProblem problem(SmallOptions(GetParam()));
  EXPECT_NE(problem.OutputDamage(), "");
}

TEST_P(HostProblemTest, GivesTheSameAnswerInEveryLayout) {
  HostProblem problem(SmallOptions(GetParam()));
  HostProblem bshd(SmallOptions(Layout::kBshd));
  kernels::reference::Plain(problem.problem());
  kernels::reference::Plain(bshd.problem());
  EXPECT_EQ(problem.AnswerBytes().size(), bshd.AnswerBytes().size());
  EXPECT_EQ(problem.Out(1, 4, 3, 7), bshd.Out(1, 4, 3, 7));
  EXPECT_EQ(problem.Lse(1, 3, 4), bshd.Lse(1, 3, 4));
}

INSTANTIATE_TEST_SUITE_P(Layouts, HostProblemTest,
                         ::testing::Values(Layout::kBshd, Layout::kBhsd,
                                           Layout::kThd, Layout::kPackedQkv));

}  // namespace
}  // namespace attendant::testing
