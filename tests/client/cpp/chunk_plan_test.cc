#include "client/cpp/chunk_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

namespace attendant::client {
namespace {

class ChunkPlanTest : public ::testing::Test {
 protected:
  // fp16 q, k, v of these shapes.
  void Set(Layout layout, std::vector<int64_t> q, std::vector<int64_t> kv) {
    args_.layout = layout;
    const auto set = [&](TensorView* view, const std::vector<int64_t>& shape) {
      int64_t elements = 1;
      for (const int64_t size : shape) elements *= size;
      memory_.resize(std::max(memory_.size(), size_t(elements)));
      *view = {nullptr, DataType::kFloat16, shape, {}};
    };
    set(&args_.q, q);
    set(&args_.k, kv);
    set(&args_.v, kv);
    args_.q.data = args_.k.data = args_.v.data = memory_.data();
  }

  // The plan, after a check that it covers every tensor once.
  std::vector<PlannedChunk> Plan(int64_t chunk_bytes) {
    const auto header = EncodeHeader(args_);
    EXPECT_TRUE(header.ok()) << header.status();
    const auto plan = PlanChunks(args_, header->tensors, chunk_bytes);
    std::map<std::pair<size_t, int64_t>, int64_t> sorted;
    for (const PlannedChunk& chunk : plan) {
      EXPECT_GT(chunk.bytes, 0);
      EXPECT_LE(chunk.bytes, chunk_bytes);
      sorted[{chunk.tensor, chunk.offset}] = chunk.bytes;
    }
    EXPECT_EQ(sorted.size(), plan.size());
    std::vector<int64_t> ends(header->tensors.size(), 0);
    for (const auto& [at, bytes] : sorted) {
      EXPECT_EQ(at.second, ends[at.first]);
      ends[at.first] += bytes;
    }
    for (size_t t = 0; t < ends.size(); ++t) {
      EXPECT_EQ(ends[t], header->tensors[t].bytes.num_bytes);
    }
    return plan;
  }

  std::vector<uint16_t> memory_;
  AttendArgs args_;
};

// 0 is q, 1 is k, 2 is v.
TEST_F(ChunkPlanTest, KAndVOfABatchEntryGoBeforeItsQ) {
  Set(Layout::kBSHD, {2, 64, 4, 32}, {2, 64, 4, 32});  // entries of 16 KiB
  const auto plan = Plan(16384);
  ASSERT_EQ(plan.size(), 6u);
  const size_t order[] = {1, 2, 0, 1, 2, 0};
  for (size_t c = 0; c < 6; ++c) {
    EXPECT_EQ(plan[c].tensor, order[c]);
    EXPECT_EQ(plan[c].offset, c < 3 ? 0 : 16384);
  }
}

TEST_F(ChunkPlanTest, HeadsGoOneAfterTheOtherWhereTheyLieApart) {
  Set(Layout::kBHSD, {1, 8, 64, 32}, {1, 4, 64, 32});  // heads of 4 KiB
  const auto plan = Plan(8192);
  ASSERT_EQ(plan.size(), 12u);
  for (size_t c = 0; c < plan.size(); c += 3) {
    EXPECT_EQ(plan[c].tensor, 1u);
    EXPECT_EQ(plan[c + 1].tensor, 2u);
    EXPECT_EQ(plan[c + 2].tensor, 0u);
    EXPECT_EQ(plan[c + 2].bytes, 2 * plan[c].bytes);
  }
}

TEST_F(ChunkPlanTest, SmallPortionsShareChunks) {
  Set(Layout::kBSHD, {64, 4, 2, 8}, {64, 4, 2, 8});  // entries of 128 bytes
  EXPECT_LE(Plan(4096).size(), 12u);
}

TEST_F(ChunkPlanTest, TheLastChunkGoesInPieces) {
  Set(Layout::kBSHD, {1, 4096, 8, 128}, {1, 64, 8, 128});  // q of 8 MiB
  const auto plan = Plan(4 << 20);
  ASSERT_EQ(plan.size(), 2u + 1 + 4);
  EXPECT_EQ(plan[2].bytes, 4 << 20);
  for (size_t c = 3; c < plan.size(); ++c) {
    EXPECT_EQ(plan[c].tensor, 0u);
    EXPECT_EQ(plan[c].bytes, 1 << 20);
    EXPECT_EQ(plan[c].offset, static_cast<int64_t>(c + 1) << 20);
  }
}

TEST_F(ChunkPlanTest, SequencesOfPackedTensors) {
  Set(Layout::kTHD, {100, 4, 32}, {60, 4, 32});
  args_.cu_seqlens_q = {0, 90, 100};
  args_.cu_seqlens_k = {0, 10, 60};
  const auto plan = Plan(4096);
  EXPECT_EQ(plan[0].tensor, 1u);
  EXPECT_EQ(plan[0].bytes, 10 * 4 * 32 * 2);
  args_.cu_seqlens_k = {0, 70, 60};  // what the server will refuse
  Plan(4096);
  args_.cu_seqlens_k = {};
  Plan(4096);
}

TEST_F(ChunkPlanTest, AnyShapeIsCovered) {
  Set(Layout::kBSHD, {3, 7, 5, 9}, {3, 11, 5, 9});
  for (const int64_t bytes : {8, 24, 1000, 1 << 20}) Plan(bytes);
  Set(Layout::kBSHD, {0, 7, 5, 9}, {0, 11, 5, 9});
  EXPECT_TRUE(Plan(64).empty());
  Set(Layout::kBSHD, {1, 7, 5, 9}, {1, 0, 5, 9});
  Plan(64);
}

}  // namespace
}  // namespace attendant::client
