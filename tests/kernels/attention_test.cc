// Which kernel a plan takes.
#include "kernels/attention.h"

#include <gtest/gtest.h>

namespace attendant::kernels {
namespace {

// fp16, batch 2, one head; the second entry begins `batch_stride` elements on.
AttentionProblem Fp16(int64_t batch_stride) {
  AttentionProblem problem;
  problem.dtype = problem.output_dtype = DataType::kFloat16;
  problem.batch = 2;
  problem.num_q_heads = problem.whole_num_q_heads = 1;
  problem.num_kv_heads = problem.whole_num_kv_heads = 1;
  problem.head_dim = problem.head_dim_v = 64;
  problem.rows_q = 32;
  alignas(16) static char memory[16];
  problem.q = problem.k = problem.v = {memory, batch_stride, 64, 64};
  problem.out = {memory, 32 * 64, 64, 64};
  problem.sequences = {{.len_q = 32, .len_kv = 32, .whole_len_q = 32}};
  return problem;
}

TEST(PlanAttentionTest, ParentsKernelIsKeptByAPartThatABetterOneWouldServe) {
#ifdef ATTENDANT_WITH_CUDA
  const DeviceProperties hopper{.compute_capability = 90,
                                .num_sms = 132,
                                .shared_memory_per_block_optin = 232448};
  // 2 bytes beyond a multiple of 16: the copy engine cannot walk the batch.
  AttentionProblem whole = Fp16(32 * 64 + 1);
  const auto kernel = FindKernel(hopper, whole);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_EQ((*kernel)->capability.kernel, "sm80");
  const AttentionProblem free_part = CutProblem(whole, 0, 1, 0, 1);
  EXPECT_EQ(PlanAttention(hopper, {&free_part, 1})->kernel_name(0), "sm90");
  whole.kernel = (*kernel)->capability.kernel;
  const AttentionProblem part = CutProblem(whole, 0, 1, 0, 1);
  EXPECT_EQ(PlanAttention(hopper, {&part, 1})->kernel_name(0), "sm80");
#else
  GTEST_SKIP() << "a build without GPU kernels has one kernel";
#endif
}

TEST(PlanAttentionTest, ARefusalSaysWhatEveryKernelLacks) {
  AttentionProblem problem = Fp16(32 * 64);
  problem.head_dim = 257;
  const auto plan = PlanAttention({.compute_capability = 0}, {&problem, 1});
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(plan.status().message().find("head_dim up to 256"),
            absl::string_view::npos)
      << plan.status();
}

}  // namespace
}  // namespace attendant::kernels
