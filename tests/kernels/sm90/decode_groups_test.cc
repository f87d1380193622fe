// Chunks, items and slots of the decode kernels: host-only, no GPU needed.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/sm90/decode_plan.h"

namespace attendant::kernels::sm90 {
namespace {

constexpr int kSms = 132;

AttentionProblem Decode(int64_t batch, int64_t len_q, int64_t len_kv,
                        int64_t q_heads = 64, int64_t kv_heads = 8,
                        int64_t head_dim = 128) {
  AttentionProblem problem;
  problem.dtype = problem.output_dtype = DataType::kBFloat16;
  problem.batch = batch;
  problem.num_q_heads = problem.whole_num_q_heads = q_heads;
  problem.num_kv_heads = problem.whole_num_kv_heads = kv_heads;
  problem.head_dim = problem.head_dim_v = head_dim;
  problem.rows_q = len_q;
  problem.sequences = {
      {.len_q = len_q, .len_kv = len_kv, .whole_len_q = len_q}};
  return problem;
}

std::vector<DecodeGroup> Group(const std::vector<AttentionProblem>& problems) {
  std::vector<const AttentionProblem*> pointers;
  for (const AttentionProblem& problem : problems) pointers.push_back(&problem);
  return GroupThinSequences(pointers, kSms);
}

TEST(DecodeGroupsTest, OneRequestAloneIsCutIntoABlockForEverySlot) {
  for (int64_t len_kv : {2048, 8192, 32768, 131072}) {
    const std::vector<DecodeGroup> few = Group({Decode(1, 1, len_kv)});
    ASSERT_EQ(few.size(), 1u);
    EXPECT_EQ(few[0].width, DecodeWidth::kFew);
    EXPECT_EQ(few[0].num_items, 128) << len_kv;
    EXPECT_EQ(few[0].num_slots, 128) << len_kv;
    EXPECT_FALSE(few[0].combines);  // the last block to arrive does
    const std::vector<DecodeGroup> more = Group({Decode(1, 4, len_kv)});
    EXPECT_EQ(more[0].width, DecodeWidth::k64);
    EXPECT_EQ(more[0].num_items, len_kv == 2048 ? 64 : 128) << len_kv;
    EXPECT_TRUE(more[0].combines);
  }
}

TEST(DecodeGroupsTest, ManyRequestsFoldMostChunksInOneBlockEach) {
  const std::vector<DecodeGroup> groups = Group({Decode(128, 1, 2048)});
  const DecodeSequence& record = groups[0].sequences[0];
  EXPECT_EQ(record.coarse.parts, 1);
  EXPECT_EQ(record.coarse.items, 96 * 8);
  EXPECT_EQ(record.fine.first_batch, 96);
  EXPECT_EQ(record.fine.unit, kFewOctet);
  EXPECT_EQ(record.fine.parts, 2);
  EXPECT_EQ(groups[0].num_slots, 32 * 8 * 2);
}

TEST(DecodeGroupsTest, WideTilesFoldAllTheirChunksOnceStrandsAreMany) {
  EXPECT_EQ(Group({Decode(32, 16, 8192)})[0].num_slots, 0);
  EXPECT_EQ(Group({Decode(8, 16, 8192)})[0].num_items, 128);
}

// Every chunk in exactly one item; items end where the units do.
TEST(DecodeGroupsTest, ItemsOfFewRowsPartitionTheChunks) {
  for (int64_t batch : {1, 2, 8, 37, 128}) {
    for (int64_t len_kv : {1, 127, 129, 2048, 5000, 40'000, 131'072}) {
      AttentionProblem problem = Decode(batch, 1, len_kv);
      problem.causal = true;
      problem.window_left = len_kv * 2 / 3;
      problem.sequences[0].diagonal_shift = len_kv - 1;
      const DecodeSequence record = Group({problem})[0].sequences[0];
      EXPECT_LE(int64_t{record.end_chunk - 1} * record.chunk_keys, len_kv);
      for (const DecodeSegment& segment : {record.coarse, record.fine}) {
        int next = record.first_chunk;
        for (int part = 0; part < segment.parts; ++part) {
          const int unit = record.first_chunk / segment.unit + part;
          const int begin = std::max(record.first_chunk, unit * segment.unit);
          const int end = std::min(record.end_chunk, (unit + 1) * segment.unit);
          EXPECT_EQ(begin, next);
          EXPECT_LT(begin, end);
          next = end;
        }
        EXPECT_EQ(next, record.end_chunk);
        EXPECT_TRUE(segment.unit == 1 || segment.unit == kFewOctet ||
                    segment.unit == kFewGroup || segment.parts == 1);
      }
      EXPECT_EQ(record.coarse.items / record.coarse.parts +
                    record.fine.items / record.fine.parts,
                batch * 8);
    }
  }
}

TEST(DecodeGroupsTest, ChunksDependOnTheRequestAlone) {
  const AttentionProblem alone = Decode(1, 4, 5000);
  AttentionProblem batched = Decode(32, 4, 5000);
  EXPECT_EQ(ChunkKeys(alone, alone.sequences[0]),
            ChunkKeys(batched, batched.sequences[0]));
  // Cut at KV-head borders: the whole's head counts decide.
  const AttentionProblem part = CutProblem(batched, 3, 5, 2, 3);
  EXPECT_EQ(ChunkKeys(alone, alone.sequences[0]),
            ChunkKeys(part, part.sequences[0]));
}

TEST(DecodeGroupsTest, ChunksCoverExactlyTheKeysThatSomeRowSees) {
  AttentionProblem problem = Decode(1, 3, 100'000);
  problem.causal = true;
  problem.window_left = 4000;
  problem.sequences[0].diagonal_shift = 100'000 - 3;
  const DecodeSequence record = Group({problem})[0].sequences[0];
  EXPECT_EQ(record.key_end, 100'000);
  EXPECT_LE(record.key_begin, 100'000 - 3 - 4000);
  EXPECT_GT(record.key_begin + record.chunk_keys, 100'000 - 3 - 4000);
  EXPECT_EQ(record.key_begin % record.chunk_keys, 0);
  EXPECT_EQ(record.num_chunks,
            (record.key_end - record.key_begin + record.chunk_keys - 1) /
                record.chunk_keys);
}

TEST(DecodeGroupsTest, SlotsAndItemsOfMixedRequestsDoNotOverlap) {
  std::vector<AttentionProblem> problems;
  for (int64_t batch : {1, 3}) {
    for (int64_t len_q : {1, 2, 16}) {
      for (int64_t len_kv : {0, 1, 63, 64, 65, 4096, 70'000}) {
        for (int64_t heads : {8, 24, 128}) {
          problems.push_back(Decode(batch, len_q, len_kv, heads, 8));
        }
      }
    }
  }
  for (const DecodeGroup& group : Group(problems)) {
    int64_t items = 0;
    int64_t strands = 0;
    int64_t slots = 0;
    for (const DecodeSequence& record : group.sequences) {
      EXPECT_EQ(record.first_item, items);
      EXPECT_EQ(record.first_strand, strands);
      EXPECT_EQ(record.first_slot, slots);
      const int64_t of_record =
          int64_t{record.batch_count} * 8 * record.row_tiles;
      if (group.width == DecodeWidth::kFew) {
        items += record.coarse.items + record.fine.items;
      } else {
        EXPECT_GE(record.chunks_per_item * record.items_per_strand,
                  record.num_chunks);
        EXPECT_GE(record.items_per_strand, 1);
        EXPECT_EQ(record.num_slots, of_record * record.slots_per_strand);
        items += of_record * record.items_per_strand;
      }
      strands += of_record;
      slots += record.num_slots;
    }
    EXPECT_EQ(group.num_items, items);
    EXPECT_EQ(group.num_strands, strands);
    EXPECT_EQ(group.num_slots, slots);
  }
}

TEST(DecodeGroupsTest, LongQueriesAndMasksAreNotThin) {
  AttentionProblem problem = Decode(1, 17, 4096);
  EXPECT_FALSE(IsThin(problem, problem.sequences[0]));
  problem = Decode(1, 16, 4096);
  EXPECT_TRUE(IsThin(problem, problem.sequences[0]));
  // The first rows of a longer sequence are not thin either: the whole decides.
  problem.sequences[0].whole_len_q = 17;
  EXPECT_FALSE(IsThin(problem, problem.sequences[0]));
}

}  // namespace
}  // namespace attendant::kernels::sm90
