// Host-only part of decode_plan.h: chunks, items and slots.
#include <algorithm>
#include <limits>

#include "kernels/sm90/decode_plan.h"
#include "kernels/sm90/key_offsets.h"

namespace attendant::kernels::sm90 {
namespace {

// Keeps sums of window sizes from overflowing.
constexpr int64_t kWindowCap = int64_t{1} << 40;
constexpr int64_t kMostThinRows = 16;  // query rows, before packing
constexpr int64_t kNarrowRows = 64;    // packed rows of one warpgroup
// Pieces that a request which is alone is cut into. A constant, not the
// device's count: chunks decide bits.
constexpr int64_t kPiecesAlone = 128;
constexpr int64_t kFewLeastChunk = 128;    // eight warps' 16 keys
constexpr int64_t kFewLargestPiece = 512;  // that is one chunk
// A partial result is written and read again: rows * d * 8 bytes a chunk, so
// chunks grow with the rows.
constexpr int64_t kLeastChunkWide = 256;
// Blocks end at unequal times, so each place on a multiprocessor gets several,
// as long as they are worth their start.
constexpr int64_t kItemsPerSlot = 4;
constexpr int64_t kLeastKeysPerItem = 1024;
// 128 packed rows, in the time that a key's K and V take.
constexpr int64_t kWideItemKeys = 256;  // a block's start and end
constexpr int64_t kWideSlotKeys = 260;  // a partial result, out and in
// Few rows: a block gets this many large items, or all are made smaller; of
// work cut into large items, the last share is cut finer.
constexpr int64_t kFewItemKeys = 96;  // what an item costs beside its keys
constexpr int64_t kFewItemsPerBlock = 4;
constexpr int64_t kFineShare = 4;                   // one in
constexpr int64_t kWholeStrand = int64_t{1} << 28;  // chunks: all

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t RoundUp(int64_t a, int64_t b) { return DivideUp(a, b) * b; }

int64_t PackedRows(const AttentionProblem& problem, int64_t len_q) {
  const int64_t group =
      problem.whole_num_kv_heads == 0
          ? 1
          : problem.whole_num_q_heads / problem.whole_num_kv_heads;
  return len_q * group;
}

const DecodeClassRow& RowOf(DecodeClass decode_class) {
  return kDecodeClasses[static_cast<int>(decode_class)];
}

DecodeWidth WidthOf(const AttentionProblem& problem,
                    const SequenceBounds& sequence) {
  const int64_t rows = PackedRows(problem, sequence.whole_len_q);
  if (rows <= DecodeFew128::kRows) return DecodeWidth::kFew;
  return rows <= kNarrowRows ? DecodeWidth::k64 : DecodeWidth::k128;
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
                        int64_t batch_count, DecodeWidth width) {
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
  record.row_tiles =
      width == DecodeWidth::kFew
          ? 1
          : static_cast<int32_t>(DivideUp(bounds.len_q * problem.group_size(),
                                          RowsOfTile(width)));

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
    record.first_chunk = static_cast<int32_t>(begin / chunk);
    record.end_chunk = record.first_chunk + record.num_chunks;
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
  record.num_slots = static_cast<int32_t>(strands * record.slots_per_strand);
  group.num_slots += record.num_slots;
}

// 128 packed rows, one record for all `num_blocks` blocks: few large items,
// since chunks that are not folded in their block cost as much as kWideSlotKeys
// each.
int64_t KeysOfWideItem(const DecodeSequence& record, int64_t strands,
                       int64_t num_blocks) {
  int64_t best = record.chunk_keys;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int64_t parts = 1; parts <= record.num_chunks; parts *= 2) {
    const int64_t chunks = DivideUp(record.num_chunks, parts);
    const int64_t slots = parts == 1 ? 0 : record.num_chunks - chunks + 1;
    const int64_t items = strands * DivideUp(record.num_chunks, chunks);
    const int64_t cost = DivideUp(items, num_blocks) *
                             (chunks * record.chunk_keys + kWideItemKeys) +
                         strands * slots * kWideSlotKeys / num_blocks;
    if (cost < least) {
      least = cost;
      best = chunks * record.chunk_keys;
    }
  }
  return best;
}

int64_t FewChunkKeys(const AttentionProblem& problem,
                     const SequenceBounds& sequence) {
  const int64_t fair =
      DivideUp(KeySpan(problem, sequence) *
                   std::max<int64_t>(1, problem.whole_num_kv_heads),
               kPiecesAlone);
  // A piece is a chunk, or an octet: then many requests can be cut finer too.
  const int64_t chunk =
      fair <= kFewLargestPiece ? fair : DivideUp(fair, kFewOctet);
  return RoundUp(std::max(kFewLeastChunk, chunk), kFewLeastChunk);
}

// Items of `unit` chunks (at multiples of `unit`) of one strand.
int64_t PartsOf(const DecodeSequence& record, int64_t unit) {
  return record.num_chunks == 0
             ? 1
             : DivideUp(record.end_chunk, unit) - record.first_chunk / unit;
}

DecodeSegment SegmentOf(const DecodeSequence& record, int64_t unit,
                        int64_t heads, int64_t first_batch, int64_t batches) {
  DecodeSegment segment = {};
  segment.first_batch = static_cast<int32_t>(first_batch);
  segment.unit = static_cast<int32_t>(unit);
  segment.parts = static_cast<int32_t>(PartsOf(record, unit));
  segment.items = static_cast<int32_t>(batches * heads * segment.parts);
  return segment;
}

// Few rows: the record's items, slots and strands, for `num_blocks` blocks that
// have it to themselves.
void DivideFew(DecodeGroup& group, DecodeSequence& record, int64_t heads,
               int64_t num_blocks) {
  constexpr int64_t kUnits[] = {kWholeStrand, kFewGroup, kFewOctet, 1};
  constexpr int kLast = 3;
  const int64_t strands = record.batch_count * heads;
  int level = 0;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int i = 0; i <= kLast; ++i) {
    const int64_t keys = std::min<int64_t>(record.key_end - record.key_begin,
                                           kUnits[i] * record.chunk_keys);
    const int64_t cost =
        DivideUp(strands * PartsOf(record, kUnits[i]), num_blocks) *
        (keys + kFewItemKeys);
    if (cost < least) {
      least = cost;
      level = i;
    }
  }
  const int64_t parts = PartsOf(record, kUnits[level]);
  int fine_level = level;
  while (fine_level < kLast && PartsOf(record, kUnits[fine_level]) == parts) {
    ++fine_level;
  }
  const bool has_fine = strands * parts >= kFewItemsPerBlock * num_blocks;
  const int64_t fine_batches =
      has_fine ? DivideUp(record.batch_count, kFineShare) : 0;
  const int64_t coarse_batches = record.batch_count - fine_batches;
  record.coarse = SegmentOf(record, kUnits[level], heads, 0, coarse_batches);
  record.fine = SegmentOf(record, kUnits[fine_level], heads, coarse_batches,
                          fine_batches);
  const auto slots_of = [](const DecodeSegment& segment) {
    return segment.parts > 1 ? int64_t{segment.items} : int64_t{0};
  };
  record.fine.first_slot = static_cast<int32_t>(slots_of(record.coarse));
  record.first_item = static_cast<int32_t>(group.num_items);
  record.first_strand = static_cast<int32_t>(group.num_strands);
  record.first_slot = static_cast<int32_t>(group.num_slots);
  record.num_slots =
      static_cast<int32_t>(slots_of(record.coarse) + slots_of(record.fine));
  group.num_items += int64_t{record.coarse.items} + record.fine.items;
  group.num_strands += strands;
  group.num_slots += record.num_slots;
}

}  // namespace

int64_t RowsOfTile(DecodeWidth width) {
  return width == DecodeWidth::k128 ? 128 : 64;
}

bool IsThin(const AttentionProblem& problem, const SequenceBounds& sequence) {
  return problem.mask.kind == MaskKind::kNone &&
         sequence.whole_len_q <= kMostThinRows;
}

int64_t ChunkKeys(const AttentionProblem& problem,
                  const SequenceBounds& sequence) {
  const DecodeClassRow& row =
      RowOf(DecodeClassOf(problem.head_dim, problem.head_dim_v));
  const DecodeWidth width = WidthOf(problem, sequence);
  if (width == DecodeWidth::kFew) return FewChunkKeys(problem, sequence);
  const bool wide = width == DecodeWidth::k128;
  const int64_t tile_kv = wide ? row.tile_kv_wide : row.tile_kv;
  const int64_t tiles =
      DivideUp(PackedRows(problem, sequence.whole_len_q), wide ? 128 : 64);
  const int64_t strands =
      std::max<int64_t>(1, problem.whole_num_kv_heads * tiles);
  const int64_t fair =
      DivideUp(KeySpan(problem, sequence) * strands, kPiecesAlone);
  return RoundUp(std::max(fair, kLeastChunkWide), tile_kv);
}

int64_t DecodeGroup::slot_bytes() const {
  const DecodeClassRow& row = RowOf(decode_class);
  const int64_t rows =
      width == DecodeWidth::kFew ? DecodeFew128::kRows : RowsOfTile(width);
  return PartialSlotFloats(row.head_dim, static_cast<int>(rows)) *
         sizeof(float);
}

std::vector<DecodeGroup> GroupThinSequences(
    std::span<const AttentionProblem* const> problems, int num_sms) {
  std::vector<DecodeGroup> groups;
  const auto group_of = [&](DecodeClass decode_class, DecodeWidth width,
                            DataType dtype) -> DecodeGroup& {
    for (DecodeGroup& group : groups) {
      if (group.decode_class == decode_class && group.width == width &&
          group.dtype == dtype) {
        return group;
      }
    }
    DecodeGroup& group = groups.emplace_back();
    group.decode_class = decode_class;
    group.width = width;
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
      const DecodeWidth width = WidthOf(problem, bounds);
      group_of(DecodeClassOf(problem.head_dim, problem.head_dim_v), width,
               problem.dtype)
          .sequences.push_back(RecordOf(problem, p, b, batch_count, width));
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
    if (group.width == DecodeWidth::kFew) {
      for (DecodeSequence& record : group.sequences) {
        const int64_t mine =
            strands_of(record) * (record.key_end - record.key_begin);
        DivideFew(
            group, record, problems[record.problem]->num_kv_heads,
            std::max<int64_t>(1, num_sms * mine / std::max<int64_t>(1, keys)));
      }
      continue;
    }
    const bool one_block = group.width == DecodeWidth::k128 ||
                           group.decode_class == DecodeClass::k256;
    const int64_t fair = keys / (num_sms * (one_block ? 1 : 2));
    const int64_t keys_per_item = std::max<int64_t>(
        {1, fair / kItemsPerSlot, std::min(fair, kLeastKeysPerItem)});
    for (DecodeSequence& record : group.sequences) {
      const int64_t strands = strands_of(record);
      const bool is_alone =
          group.width == DecodeWidth::k128 && group.sequences.size() == 1;
      Divide(
          group, record,
          is_alone ? KeysOfWideItem(record, strands, num_sms) : keys_per_item,
          strands);
    }
  }
  return groups;
}

}  // namespace attendant::kernels::sm90
