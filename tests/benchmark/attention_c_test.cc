#include "tests/benchmark/attention_c.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/testing/host_problem.h"
#include "tests/testing/tensor_matchers.h"

namespace attendant::testing {
namespace {

AttendantTensor Tensor(const void* data, int64_t batch, int64_t row,
                       int64_t head) {
  return {const_cast<void*>(data), batch, row, head};
}

// The C form of `owner`; `sequences` holds what it points to.
AttendantProblem ToC(const HostProblem& owner,
                     std::vector<AttendantSequence>* sequences) {
  const kernels::AttentionProblem& p = owner.problem();
  for (const kernels::SequenceBounds& s : p.sequences) {
    sequences->push_back(
        {s.q_begin, s.len_q, s.kv_begin, s.len_kv, s.diagonal_shift});
  }
  const auto view = [](const auto& t) {
    return Tensor(t.data, t.batch_stride, t.row_stride, t.head_stride);
  };
  AttendantProblem c = {};
  c.q = view(p.q);
  c.k = view(p.k);
  c.v = view(p.v);
  c.out = view(p.out);
  c.lse = p.lse;
  c.lse_batch_stride = p.lse_batch_stride;
  c.lse_head_stride = p.lse_head_stride;
  c.batch = p.batch;
  c.num_q_heads = p.num_q_heads;
  c.num_kv_heads = p.num_kv_heads;
  c.head_dim = p.head_dim;
  c.head_dim_v = p.head_dim_v;
  c.rows_q = p.rows_q;
  c.sequences = sequences->data();
  c.num_sequences = static_cast<int64_t>(sequences->size());
  c.window_left = p.window_left;
  c.window_right = p.window_right;
  c.alibi_slopes = p.alibi_slopes.empty() ? nullptr : p.alibi_slopes.data();
  c.sinks = p.sinks.empty() ? nullptr : p.sinks.data();
  c.softmax_scale = p.softmax_scale;
  c.softcap = p.softcap;
  c.dtype = static_cast<int32_t>(p.dtype);
  c.output_dtype = static_cast<int32_t>(p.output_dtype);
  c.causal = p.causal;
  return c;
}

TEST(AttentionCTest, AnswersAsTheOracleOnTheCpu) {
  for (const kernels::DataType dtype :
       {kernels::DataType::kFloat32, kernels::DataType::kFloat16,
        kernels::DataType::kBFloat16}) {
    ProblemOptions options;
    options.dtype = dtype;
    options.batch = 2;
    options.num_q_heads = 4;
    options.num_kv_heads = 2;
    options.seqlen_q = 33;
    options.seqlen_kv = 70;
    options.causal = options.bottom_right = true;
    options.window_left = 50;
    options.alibi = options.sinks = true;
    options.softcap = 10;
    HostProblem problem(options);
    std::vector<AttendantSequence> sequences;
    const AttendantProblem c = ToC(problem, &sequences);
    char error[256] = "";
    AttendantPlan* plan =
        attendant_plan_create(&c, 1, "cpu", 2, error, sizeof error);
    ASSERT_NE(plan, nullptr) << error;
    EXPECT_STREQ(attendant_plan_kernel(plan, 0), "cpu");
    EXPECT_GE(attendant_plan_device_bytes(plan),
              attendant_plan_workspace_bytes(plan));
    EXPECT_EQ(attendant_plan_launch(plan, nullptr, error, sizeof error), 0)
        << error;
    EXPECT_EQ(attendant_plan_repair(plan, nullptr, error, sizeof error), 0);
    attendant_plan_destroy(plan);
    EXPECT_TRUE(MatchesOracle(problem));
  }
}

TEST(AttentionCTest, SaysWhichKernelDoesNotServe) {
  ProblemOptions options;
  HostProblem problem(options);
  std::vector<AttendantSequence> sequences;
  const AttendantProblem c = ToC(problem, &sequences);
  char error[16] = "";
  EXPECT_EQ(attendant_plan_create(&c, 1, "sm80", 2, error, sizeof error),
            nullptr);
  EXPECT_EQ(std::string(error), "UNIMPLEMENTED: ");  // cut, and ended
}

}  // namespace
}  // namespace attendant::testing
