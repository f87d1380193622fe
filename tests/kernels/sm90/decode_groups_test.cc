// Chunks, items and slots of the decode kernels: host-only, no GPU needed.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

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
  EXPECT_EQ(record.coarse.slots, 0);
  EXPECT_EQ(record.coarse.items, 120 * 8);
  // The last are cut to octets of 128 keys a chunk.
  EXPECT_EQ(record.fine.first_batch, 120);
  EXPECT_EQ(record.fine.grain, kFewOctet);
  EXPECT_EQ(record.fine.parts, 2);
  EXPECT_EQ(record.fine.unit, kFewOctet);
  EXPECT_EQ(record.fine.slots, 2);
  EXPECT_EQ(groups[0].num_slots, 8 * 8 * 2);
  EXPECT_EQ(groups[0].num_tails, 0);
  // Where octets are long, to two chunks of 256 keys, a slot each.
  const DecodeGroup longer = Group({Decode(128, 1, 4096)})[0];
  EXPECT_EQ(longer.sequences[0].fine.grain, 2);
  EXPECT_EQ(longer.sequences[0].fine.unit, 1);
  EXPECT_EQ(longer.sequences[0].fine.slots, 16);
}

// 256 items on 132 blocks: 124 blocks have two, and their second item leaves a
// sixteenth to those that have one.
TEST(DecodeGroupsTest, TailsEvenOutTheLastRound) {
  const DecodeGroup whole = Group({Decode(32, 1, 8192)})[0];
  const DecodeSequence& strands = whole.sequences[0];
  EXPECT_EQ(strands.coarse.items, 256);
  EXPECT_EQ(strands.coarse.parts, 1);
  EXPECT_EQ(strands.fine.items, 0);
  EXPECT_EQ(strands.tails.items, 124);
  EXPECT_EQ(strands.tails.first_item, kSms);
  EXPECT_EQ(strands.tails.chunks, 1);
  EXPECT_EQ(strands.tails.first_slot, 0);
  EXPECT_EQ(strands.tails.first_word, 256);  // after the strands'
  EXPECT_EQ(whole.num_tails, 124);
  EXPECT_EQ(whole.num_slots, 124 * (DecodeTails::kKept + 1));

  // Items that are a part of a strand have tails just so.
  const DecodeGroup groups = Group({Decode(8, 1, 32768)})[0];
  const DecodeSequence& parts = groups.sequences[0];
  EXPECT_EQ(parts.coarse.parts, 4);
  EXPECT_EQ(parts.coarse.unit, kFewGroup);
  EXPECT_EQ(parts.tails.items, 124);
  EXPECT_EQ(parts.tails.chunks, 2);
  EXPECT_EQ(parts.tails.first_slot, 256);  // after the strands' slots
  EXPECT_EQ(parts.tails.first_word, 64);
  EXPECT_EQ(groups.num_slots, 256 + 124 * (DecodeTails::kKept + 2));

  // The shapes that sm90_gpu_test runs.
  for (const auto& [batch, len_kv] :
       {std::pair<int64_t, int64_t>{247, 1100}, {247, 2048}, {61, 16384}}) {
    for (int64_t head_dim : {64, 128}) {
      const DecodeGroup group =
          Group({Decode(batch, 1, len_kv, 8, 1, head_dim)})[0];
      EXPECT_GT(group.num_tails, 0) << batch << " x " << len_kv;
    }
  }

  // One round or less, an even last round, a last round of few items, items of
  // unequal lengths, more rows, large heads: none.
  AttentionProblem window = Decode(32, 1, 16384);
  window.window_left = 8000;
  window.sequences[0].diagonal_shift = 16383;
  for (const AttentionProblem& problem :
       {Decode(15, 1, 8192), Decode(33, 1, 8192), Decode(20, 1, 8192),
        Decode(8, 1, 32768 - 4096), Decode(32, 16, 8192),
        Decode(32, 1, 8192, 64, 8, 256), window}) {
    EXPECT_EQ(Group({problem})[0].num_tails, 0)
        << problem.batch << " x " << problem.sequences[0].len_kv;
  }
  // Nor of several records: the first one's would not be the last items.
  EXPECT_EQ(Group({Decode(16, 1, 8192), Decode(16, 1, 8192)})[0].num_tails, 0);
}

TEST(DecodeGroupsTest, MoreRowsFoldAsMuchInABlockAsKeepsAllBusy) {
  const DecodeGroup many = Group({Decode(32, 16, 8192)})[0];
  EXPECT_EQ(many.num_slots, 0);
  EXPECT_TRUE(many.keeps_quads);
  EXPECT_EQ(many.num_blocks, kSms);
  EXPECT_GT(many.scratch_bytes(), 0);
  const DecodeGroup some = Group({Decode(8, 16, 8192)})[0];
  EXPECT_EQ(some.num_items, 128);
  EXPECT_EQ(some.sequences[0].coarse.unit, kSplitOctet);
  EXPECT_EQ(Group({Decode(8, 16, 2048)})[0].sequences[0].coarse.unit,
            kSplitQuad);
  const DecodeGroup one = Group({Decode(1, 16, 8192)})[0];
  EXPECT_EQ(one.sequences[0].coarse.unit, 1);
  EXPECT_EQ(one.scratch_bytes(), 0);
}

TEST(DecodeGroupsTest, ABlockForEveryItemOfEqualStrandsMakesClusters) {
  EXPECT_EQ(Group({Decode(1, 16, 2048)})[0].cluster_size, 8);
  EXPECT_EQ(Group({Decode(8, 16, 2048)})[0].cluster_size, 2);
  EXPECT_EQ(Group({Decode(8, 16, 8192)})[0].cluster_size, 2);
  EXPECT_EQ(Group({Decode(1, 4, 1500)})[0].cluster_size, 6);
  // More items than clusters hold, than blocks, or none to merge.
  EXPECT_EQ(Group({Decode(1, 16, 8192)})[0].cluster_size, 1);
  EXPECT_EQ(Group({Decode(8, 4, 2048)})[0].cluster_size, 1);
  EXPECT_EQ(Group({Decode(128, 16, 2048)})[0].cluster_size, 1);
  EXPECT_EQ(Group({Decode(1, 1, 2048)})[0].cluster_size, 1);
  // Strands of unequal numbers of items.
  EXPECT_EQ(Group({Decode(1, 16, 2048), Decode(1, 16, 1024)})[0].cluster_size,
            1);
  EXPECT_EQ(Group({Decode(1, 16, 2048), Decode(1, 16, 2047)})[0].cluster_size,
            8);
}

TEST(DecodeGroupsTest, ABlockForEveryItemOfShortStrandsMergesInPlace) {
  EXPECT_TRUE(Group({Decode(1, 16, 8192)})[0].merges_by_arrival);
  EXPECT_TRUE(Group({Decode(1, 4, 32768)})[0].merges_by_arrival);
  // Nothing to merge, more slots than a word has bits for, items in a queue,
  // few rows.
  EXPECT_FALSE(Group({Decode(32, 16, 8192)})[0].merges_by_arrival);
  EXPECT_FALSE(Group({Decode(1, 16, 32768, 8, 1)})[0].merges_by_arrival);
  EXPECT_FALSE(Group({Decode(1, 1, 8192)})[0].merges_by_arrival);
  const DecodeGroup queue =
      Group({Decode(1, 16, 131072), Decode(100, 16, 256)})[0];
  EXPECT_GT(queue.num_items, kSms);
  EXPECT_FALSE(queue.merges_by_arrival);
}

TEST(DecodeGroupsTest, DivisorsDivideExactly) {
  for (const uint32_t divisor :
       {1u, 2u, 3u, 5u, 7u, 8u, 11u, 24u, 127u, 132u, 1000u, 65535u, 65536u,
        715827883u, 2147483647u}) {
    const Divisor by = Divisor::Of(divisor);
    for (uint64_t multiple = 0; multiple < (1u << 31);
         multiple +=
         divisor * std::max<uint64_t>(1, (1u << 31) / 999 / divisor)) {
      for (const int64_t a :
           {int64_t(multiple) - 1, int64_t(multiple), int64_t(multiple) + 1}) {
        if (a < 0 || a > 2147483647) continue;
        ASSERT_EQ(by.Divide(static_cast<int32_t>(a)), a / divisor)
            << a << " / " << divisor;
      }
    }
    ASSERT_EQ(by.Divide(2147483647), 2147483647 / divisor) << divisor;
  }
}

TEST(DecodeGroupsTest, OnlyScoresThatNeedItTakeTheModifyingKernel) {
  AttentionProblem plain = Decode(1, 4, 512);
  plain.softmax_scale = 0.1f;
  AttentionProblem capped = plain;
  capped.softcap = 20;
  AttentionProblem negative = plain;
  negative.softmax_scale = -1;
  EXPECT_FALSE(Group({plain})[0].modifies_scores);
  EXPECT_TRUE(Group({plain, capped})[0].modifies_scores);
  EXPECT_TRUE(Group({negative})[0].modifies_scores);
}

// Every chunk in exactly one item; items end where the units do.
void ExpectPartition(int64_t batch, int64_t len_q, int64_t kv_heads) {
  for (int64_t len_kv : {1, 127, 129, 2048, 5000, 40'000, 131'072}) {
    AttentionProblem problem = Decode(batch, len_q, len_kv, 64, kv_heads);
    problem.causal = true;
    problem.window_left = len_kv * 2 / 3;
    problem.sequences[0].diagonal_shift = len_kv - len_q;
    const DecodeGroup group = Group({problem})[0];
    const DecodeSequence& record = group.sequences[0];
    const bool is_few = group.width == DecodeWidth::kFew;
    EXPECT_LE(int64_t{record.end_chunk - 1} * record.chunk_keys, len_kv);
    for (const DecodeSegment& segment : {record.coarse, record.fine}) {
      int next = record.first_chunk;
      for (int part = 0; part < segment.parts; ++part) {
        const int index = record.first_chunk / segment.grain + part;
        const int begin = std::max(record.first_chunk, index * segment.grain);
        const int end = std::min(record.end_chunk, (index + 1) * segment.grain);
        EXPECT_EQ(begin, next);
        EXPECT_LT(begin, end);
        next = end;
      }
      EXPECT_EQ(next, record.end_chunk);
      EXPECT_TRUE(
          segment.unit == 1 || segment.parts == 1 ||
          (is_few ? segment.unit == kFewOctet || segment.unit == kFewGroup
                  : segment.unit == kSplitQuad || segment.unit == kSplitOctet));
    }
    EXPECT_EQ(record.coarse.items / record.coarse.parts +
                  record.fine.items / record.fine.parts,
              batch * kv_heads * record.row_tiles);
  }
}

TEST(DecodeGroupsTest, ItemsPartitionTheChunks) {
  for (int64_t batch : {1, 2, 8, 37, 128}) {
    for (int64_t len_q : {1, 4, 16}) {
      for (int64_t kv_heads : {1, 8}) ExpectPartition(batch, len_q, kv_heads);
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
        EXPECT_EQ(record.fine.items, 0);
        EXPECT_EQ(record.coarse.items, of_record * record.coarse.parts);
        EXPECT_EQ(record.num_slots,
                  record.coarse.parts > 1 ? record.coarse.items : 0);
        items += record.coarse.items;
      }
      strands += of_record;
      slots += record.num_slots;
    }
    EXPECT_EQ(group.num_items, items);
    EXPECT_EQ(group.num_strands, strands);
    EXPECT_EQ(group.num_slots, slots);
    EXPECT_EQ(group.num_tails, 0);  // of several records
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
