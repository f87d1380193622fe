// Host-only part of decode_plan.h: chunks, items and slots.
#include <algorithm>

#include "kernels/sm90/decode_plan.h"
#include "kernels/sm90/key_offsets.h"

namespace attendant::kernels::sm90 {
namespace {

// Keeps sums of window sizes from overflowing.
constexpr int64_t kWindowCap = int64_t{1} << 40;
constexpr int64_t kMostThinRows = 16;  // query rows, before packing
constexpr int64_t kNarrowRows = 64;    // packed rows of one warpgroup
// Blocks that a request which is alone is cut into. A constant, not the
// device's count: chunks decide bits. Twice as many leave each less to do, but
// double the chunks to be merged, which cost more (b1 kv2048: 12.5 us
// against 13.1; b8 kv2048: 24.0 against 27.5).
constexpr int64_t kBlocksAlone = 128;
// A partial result is written and read again: rows * d * 8 bytes a chunk, so
// chunks grow with the rows.
constexpr int64_t kLeastChunkWide = 128;
// Blocks end at unequal times, so each place on a multiprocessor gets several,
// as long as they are worth their start.
constexpr int64_t kItemsPerSlot = 4;
constexpr int64_t kLeastKeysPerItem = 1024;

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t RoundUp(int64_t a, int64_t b) { return DivideUp(a, b) * b; }

int64_t PackedRows(const AttentionProblem& problem, int64_t len_q) {
  const int64_t group =
      problem.whole_num_kv_heads == 0
          ? 1
          : problem.whole_num_q_heads / problem.whole_num_kv_heads;
  return len_q * group;
}

bool IsWide(const AttentionProblem& problem, const SequenceBounds& sequence) {
  return PackedRows(problem, sequence.whole_len_q) > kNarrowRows;
}

// Keys that some row of the sequence sees, at most.
int64_t KeySpan(const AttentionProblem& problem,
                const SequenceBounds& sequence) {
  const int64_t right = KeysRightOf(problem);
  if (right == kWindowOpen || problem.window_left == kWindowOpen) {
    return sequence.len_kv;
  }
  return std::min(sequence.len_kv, std::min(problem.window_left, kWindowCap) +
                                       std::min(right, kWindowCap) +
                                       sequence.whole_len_q);
}

DecodeSequence RecordOf(const AttentionProblem& problem, size_t index, size_t b,
                        int64_t batch_count, bool wide) {
  const SequenceBounds& bounds = problem.sequences[b];
  DecodeSequence record = {};
  record.problem = static_cast<int32_t>(index);
  record.batch_begin = static_cast<int32_t>(b);
  record.batch_count = static_cast<int32_t>(batch_count);
  record.q_begin = static_cast<int32_t>(bounds.q_begin);
  record.len_q = static_cast<int32_t>(bounds.len_q);
  record.kv_begin = static_cast<int32_t>(bounds.kv_begin);
  record.len_kv = static_cast<int32_t>(bounds.len_kv);
  const KeyOffsets offsets = KeyOffsetsOf(problem, bounds);
  record.low_offset = offsets.low;
  record.high_offset = offsets.high;
  record.diagonal_shift = offsets.diagonal_shift;
  record.row_tiles = static_cast<int32_t>(
      DivideUp(bounds.len_q * problem.group_size(), wide ? 128 : 64));

  const int64_t chunk = ChunkKeys(problem, bounds);
  const int64_t end = std::min<int64_t>(
      bounds.len_kv, bounds.len_q - 1 + int64_t{record.high_offset});
  const int64_t begin = std::max<int64_t>(0, record.low_offset);
  record.chunk_keys = static_cast<int32_t>(chunk);
  if (end > begin) {
    record.key_begin = static_cast<int32_t>(begin / chunk * chunk);
    record.key_end = static_cast<int32_t>(end);
    record.num_chunks =
        static_cast<int32_t>(DivideUp(end - record.key_begin, chunk));
  }
  return record;
}

// Items, slots and strands of a record, given the keys a block should take.
void Divide(DecodeGroup& group, DecodeSequence& record, int64_t keys_per_item,
            int64_t strands) {
  record.chunks_per_item = static_cast<int32_t>(
      std::clamp<int64_t>(DivideUp(keys_per_item, record.chunk_keys), 1,
                          std::max<int64_t>(1, record.num_chunks)));
  record.items_per_strand = static_cast<int32_t>(std::max<int64_t>(
      1, DivideUp(record.num_chunks, record.chunks_per_item)));
  if (record.items_per_strand > 1) {
    record.slots_per_strand = record.num_chunks - record.chunks_per_item + 1;
  }
  group.combines |= record.slots_per_strand > 0;
  record.first_item = static_cast<int32_t>(group.num_items);
  record.first_strand = static_cast<int32_t>(group.num_strands);
  record.first_slot = static_cast<int32_t>(group.num_slots);
  group.num_items += strands * record.items_per_strand;
  group.num_strands += strands;
  group.num_slots += strands * record.slots_per_strand;
}

}  // namespace

bool IsThin(const AttentionProblem& problem, const SequenceBounds& sequence) {
  return problem.mask.kind == MaskKind::kNone &&
         sequence.whole_len_q <= kMostThinRows;
}

int64_t ChunkKeys(const AttentionProblem& problem,
                  const SequenceBounds& sequence) {
  const DecodeClassRow& row = kDecodeClasses[static_cast<int>(
      DecodeClassOf(problem.head_dim, problem.head_dim_v))];
  const bool wide = IsWide(problem, sequence);
  const int64_t tile_kv = wide ? row.tile_kv_wide : row.tile_kv;
  const int64_t tiles =
      DivideUp(PackedRows(problem, sequence.whole_len_q), wide ? 128 : 64);
  const int64_t strands =
      std::max<int64_t>(1, problem.whole_num_kv_heads * tiles);
  const int64_t fair =
      DivideUp(KeySpan(problem, sequence) * strands, kBlocksAlone);
  const int64_t least = wide ? kLeastChunkWide : tile_kv;
  return RoundUp(std::max({fair, least, int64_t{1}}), tile_kv);
}

int64_t DecodeGroup::slot_bytes() const {
  return PartialSlotFloats(
             kDecodeClasses[static_cast<int>(decode_class)].head_dim,
             wide ? 2 : 1) *
         sizeof(float);
}

std::vector<DecodeGroup> GroupThinSequences(
    std::span<const AttentionProblem* const> problems, int num_sms) {
  std::vector<DecodeGroup> groups;
  const auto group_of = [&](DecodeClass decode_class, bool wide,
                            DataType dtype) -> DecodeGroup& {
    for (DecodeGroup& group : groups) {
      if (group.decode_class == decode_class && group.wide == wide &&
          group.dtype == dtype) {
        return group;
      }
    }
    DecodeGroup& group = groups.emplace_back();
    group.decode_class = decode_class;
    group.wide = wide;
    group.dtype = dtype;
    return group;
  };
  for (size_t p = 0; p < problems.size(); ++p) {
    const AttentionProblem& problem = *problems[p];
    for (size_t b = 0; b < problem.sequences.size(); ++b) {
      const SequenceBounds& bounds = problem.sequences[b];
      const int64_t batch_count =
          problem.sequences.size() == 1 ? problem.batch : 1;
      if (!IsThin(problem, bounds) || bounds.len_q == 0 ||
          batch_count * problem.num_q_heads == 0) {
        continue;
      }
      const bool wide = IsWide(problem, bounds);
      group_of(DecodeClassOf(problem.head_dim, problem.head_dim_v), wide,
               problem.dtype)
          .sequences.push_back(RecordOf(problem, p, b, batch_count, wide));
    }
  }
  for (DecodeGroup& group : groups) {
    const auto strands_of = [&](const DecodeSequence& record) {
      return int64_t{record.batch_count} * record.row_tiles *
             problems[record.problem]->num_kv_heads;
    };
    int64_t keys = 0;
    for (const DecodeSequence& record : group.sequences) {
      keys += strands_of(record) * (record.key_end - record.key_begin);
    }
    const bool one_block =
        group.wide || group.decode_class == DecodeClass::k256;
    const int64_t fair = keys / (num_sms * (one_block ? 1 : 2));
    const int64_t keys_per_item = std::max<int64_t>(
        {1, fair / kItemsPerSlot, std::min(fair, kLeastKeysPerItem)});
    for (DecodeSequence& record : group.sequences) {
      Divide(group, record, keys_per_item, strands_of(record));
    }
  }
  return groups;
}

}  // namespace attendant::kernels::sm90
