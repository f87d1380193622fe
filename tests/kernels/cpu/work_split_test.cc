#include "kernels/cpu/work_split.h"

#include <gtest/gtest.h>

#include "kernels/cpu/simd_kernels.h"

namespace attendant::kernels::cpu {
namespace {

AttentionProblem Problem(int64_t batch, int64_t q_heads, int64_t kv_heads) {
  AttentionProblem problem;
  problem.batch = batch;
  problem.num_q_heads = problem.whole_num_q_heads = q_heads;
  problem.num_kv_heads = problem.whole_num_kv_heads = kv_heads;
  problem.head_dim = problem.head_dim_v = 128;
  return problem;
}

TEST(SplitWorkTest, FewRowsTakeTheDecodeForm) {
  const AttentionProblem problem = Problem(1, 32, 8);
  EXPECT_EQ(
      SplitWork(problem, {.len_q = 1, .len_kv = 9, .whole_len_q = 1}, 1).form,
      Form::kDecode);
  EXPECT_EQ(
      SplitWork(problem, {.len_q = 2, .len_kv = 9, .whole_len_q = 2}, 1).form,
      Form::kDecode);
  EXPECT_EQ(
      SplitWork(problem, {.len_q = 3, .len_kv = 9, .whole_len_q = 3}, 1).form,
      Form::kTile);
  // A cut-off part of a long sequence is computed as the whole is.
  EXPECT_EQ(
      SplitWork(problem, {.len_q = 1, .len_kv = 9, .whole_len_q = 99}, 1).form,
      Form::kTile);
}

TEST(SplitWorkTest, SplitsFollowTheWholeRequestAndNotThreadsBatchOrCuts) {
  for (int64_t len_q : {1, 16, 500}) {
    for (int64_t len_kv : {1, 511, 513, 4096, 32768, 1000000}) {
      const SequenceBounds sequence{
          .len_q = len_q, .len_kv = len_kv, .whole_len_q = len_q};
      const WorkSplit whole = SplitWork(Problem(1, 32, 8), sequence, 2);
      for (int threads : {1, 3, 16, 128}) {
        for (int64_t batch : {1, 8, 100}) {
          for (int64_t kv_heads : {1, 3, 8}) {
            AttentionProblem problem = Problem(batch, 4 * kv_heads, kv_heads);
            problem.whole_num_q_heads = 32;
            problem.whole_num_kv_heads = 8;
            const WorkSplit split = SplitWork(problem, sequence, threads);
            EXPECT_EQ(split.form, whole.form);
            EXPECT_EQ(split.chunk, whole.chunk);
            EXPECT_EQ(split.splits, whole.splits);
          }
        }
      }
    }
  }
}

TEST(SplitWorkTest, SplitsCoverAllKeysWithoutAnEmptyOne) {
  for (int64_t heads : {1, 8, 64}) {
    for (int64_t len_kv = 0; len_kv < 40000; len_kv = len_kv * 3 / 2 + 1) {
      const WorkSplit split =
          SplitWork(Problem(1, heads, heads),
                    {.len_q = 1, .len_kv = len_kv, .whole_len_q = 1}, 2);
      EXPECT_EQ(split.chunk % kKeyBlock, 0);
      EXPECT_GE(split.chunk * split.splits, len_kv);
      EXPECT_TRUE(split.splits == 1 ||
                  split.chunk * (split.splits - 1) < len_kv);
    }
  }
}

TEST(SplitWorkTest, HeadsOfAKeyGoTogetherIfTheyFillItsRow) {
  const SequenceBounds sequence{.len_q = 1, .len_kv = 32768, .whole_len_q = 1};
  AttentionProblem problem = Problem(1, 32, 8);
  problem.k = problem.v = {.row_stride = 8 * 128, .head_stride = 128};
  EXPECT_EQ(SplitWork(problem, sequence, 2).heads_per_task, 8);
  // Too few tasks for the threads.
  EXPECT_EQ(SplitWork(problem, sequence, 3).heads_per_task, 1);
  problem.batch = 8;
  EXPECT_EQ(SplitWork(problem, sequence, 16).heads_per_task, 8);
  // A part of the heads; packed qkv; BHSD.
  problem.num_kv_heads = 4;
  EXPECT_EQ(SplitWork(problem, sequence, 2).heads_per_task, 1);
  problem.num_kv_heads = 8;
  problem.v.row_stride = 48 * 128;
  EXPECT_EQ(SplitWork(problem, sequence, 2).heads_per_task, 1);
  problem.k = problem.v = {.row_stride = 128, .head_stride = 128 * 32768};
  EXPECT_EQ(SplitWork(problem, sequence, 2).heads_per_task, 1);
  problem.k = problem.v = {.row_stride = 8 * 128, .head_stride = 128};
  problem.dtype = DataType::kBFloat16;
  EXPECT_EQ(SplitWork(problem, sequence, 2).heads_per_task, 1);
}

TEST(SplitWorkTest, NoRowsMakeNoTasks) {
  EXPECT_EQ(SplitWork(Problem(1, 1, 1), {.len_kv = 5}, 2).row_tasks, 0);
}

}  // namespace
}  // namespace attendant::kernels::cpu
