// Host-side planning of the sm90 kernel: needs no GPU.
#include "kernels/sm90/work_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/sm90/sm90_attention.h"
#include "kernels/sm90/tile_table.h"

namespace attendant::kernels::sm90 {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

AttentionProblem Problem(int64_t batch, int64_t heads, int64_t len_q,
                         int64_t len_kv, int64_t head_dim) {
  AttentionProblem problem;
  problem.dtype = problem.output_dtype = DataType::kBFloat16;
  problem.batch = batch;
  problem.num_q_heads = problem.num_kv_heads = heads;
  problem.whole_num_q_heads = problem.whole_num_kv_heads = heads;
  problem.head_dim = problem.head_dim_v = head_dim;
  problem.rows_q = len_q;
  problem.q = {nullptr, len_q * heads * head_dim, heads * head_dim, head_dim};
  problem.k = problem.v = {nullptr, len_kv * heads * head_dim, heads * head_dim,
                           head_dim};
  problem.out = {nullptr, len_q * heads * head_dim, heads * head_dim, head_dim};
  problem.sequences = {{0, len_q, 0, len_kv, 0, len_q}};
  return problem;
}

TEST(TileClassTest, SmallestThatHoldsBothHeadSizes) {
  EXPECT_EQ(TileClassOf(1, 1), TileClass::k64);
  EXPECT_EQ(TileClassOf(64, 65), TileClass::k128);
  EXPECT_EQ(TileClassOf(192, 128), TileClass::k192x128);
  EXPECT_EQ(TileClassOf(129, 129), TileClass::k192);
  EXPECT_EQ(TileClassOf(8, 256), TileClass::k256);
}

TEST(WhyNotTest, RefusesWhatTheCopyEngineCannotAddress) {
  const DeviceProperties device{90, 132, 232448};
  AttentionProblem problem = Problem(1, 2, 300, 300, 64);
  EXPECT_THAT(WhyNot(device, problem), IsEmpty());
  problem.k.row_stride = 100;
  EXPECT_THAT(WhyNot(device, problem), HasSubstr("row stride of k is 200"));
  problem.k.row_stride = 128;
  problem.q.data = reinterpret_cast<const void*>(8);
  EXPECT_THAT(WhyNot(device, problem), HasSubstr("q aligned to 16 bytes"));
}

TEST(WhyNotTest, StridesOfSingleEntriesMeanNothing) {
  const DeviceProperties device{90, 132, 232448};
  AttentionProblem problem = Problem(1, 1, 300, 300, 64);
  problem.k.head_stride = problem.v.batch_stride = 3;
  EXPECT_THAT(WhyNot(device, problem), IsEmpty());
}

TEST(WorkListTest, NumbersEveryTileOnceLongestFirst) {
  const AttentionProblem shorter = Problem(2, 4, 130, 130, 128);
  const AttentionProblem longer = Problem(1, 2, 1000, 1000, 128);
  std::vector<SequenceRecord> records = SequencesOf(shorter, 0, 128);
  const std::vector<SequenceRecord> more = SequencesOf(longer, 1, 128);
  records.insert(records.end(), more.begin(), more.end());
  EXPECT_EQ(NumberTiles(records, {4, 2}), 2 * 2 * 4 + 8 * 2);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].problem, 1);
  EXPECT_EQ(records[0].first_tile, 0);
  EXPECT_EQ(records[1].first_tile, 16);
}

TEST(WorkListTest, IdleWarpgroupsOfCausalSequencesComeInTheFirstTile) {
  AttentionProblem problem = Problem(1, 2, 512, 512, 64);
  EXPECT_EQ(SequencesOf(problem, 0, 192)[0].row_shift, 0);
  problem.causal = true;
  EXPECT_EQ(SequencesOf(problem, 0, 192)[0].row_shift, 64);
  EXPECT_EQ(SequencesOf(problem, 0, 128)[0].row_shift, 0);
  problem = Problem(1, 2, 449, 449, 64);
  problem.causal = true;
  EXPECT_EQ(SequencesOf(problem, 0, 192)[0].row_shift, 64);
  problem = Problem(1, 2, 448, 448, 64);
  problem.causal = true;
  EXPECT_EQ(SequencesOf(problem, 0, 192)[0].row_shift, 128);
}

TEST(WorkListTest, SectionsDivideTheHeadsBeforeTheTail) {
  for (const int64_t heads : {1, 3, 16, 64}) {
    for (const int64_t len : {100, 512, 3000, 20000}) {
      AttentionProblem problem = Problem(3, heads, len, len, 128);
      problem.causal = true;
      for (const SequenceRecord& record : SequencesOf(problem, 0, 128)) {
        const int64_t all = record.batch_count * heads;
        EXPECT_GE(record.tail_heads, 1);
        EXPECT_LE(record.tail_heads, all);
        EXPECT_EQ((all - record.tail_heads) % record.section_heads, 0);
      }
    }
  }
}

TEST(WorkListTest, OffsetsSayWhatARowSees) {
  AttentionProblem problem = Problem(1, 1, 100, 150, 64);
  problem.sequences[0].diagonal_shift = 50;
  SequenceRecord record = SequencesOf(problem, 0, 128)[0];
  EXPECT_EQ(record.high_offset, kMaxPosition);
  EXPECT_EQ(record.low_offset, -kMaxPosition);
  problem.causal = true;
  problem.window_left = 7;
  record = SequencesOf(problem, 0, 128)[0];
  EXPECT_EQ(record.high_offset, 51);
  EXPECT_EQ(record.low_offset, 43);
  problem.window_left = int64_t{1} << 60;
  EXPECT_EQ(SequencesOf(problem, 0, 128)[0].low_offset, 50 - kMaxPosition);
}

TEST(WorkListTest, ScalesThatOrderScoresAnewTakeTheScoreModVariant) {
  AttentionProblem problem = Problem(1, 1, 100, 100, 64);
  problem.softmax_scale = 0.125f;
  EXPECT_FALSE(NeedsScoreMod(problem));
  for (const float scale : {0.0f, -1.0f, 1e-40f}) {
    problem.softmax_scale = scale;
    EXPECT_TRUE(NeedsScoreMod(problem)) << scale;
  }
}

}  // namespace
}  // namespace attendant::kernels::sm90
