// Host-only part of decode_plan.h: chunks, items and slots.
#include <algorithm>
#include <bit>
#include <limits>
#include <span>

#include "kernels/sm90/decode_division.h"
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
// What an item costs beside its keys, and a row's partial result (out and in),
// in the time that a key's K and V take.
constexpr int64_t kFewItemKeys = 96;
constexpr int64_t kSplitItemKeys = 256;
constexpr int64_t kSlotKeysPerRow = 2;
constexpr int kLargestCluster = 8;                  // that every device takes
constexpr int64_t kWholeStrand = int64_t{1} << 28;  // chunks: all
constexpr int64_t kFewUnits[] = {kWholeStrand, kFewGroup, kFewOctet, 1};
constexpr int64_t kSplitUnits[] = {kWholeStrand, kSplitOctet, kSplitQuad, 1};

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
  record.row_tiles = static_cast<int32_t>(
      DivideUp(bounds.len_q * problem.group_size(), RowsOfTile(width)));

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

int64_t BlocksPerSm(const DecodeGroup& group) {
  return group.width == DecodeWidth::k64 &&
                 group.decode_class != DecodeClass::k256
             ? 2
             : 1;
}

// 1 unless every strand has the same number of items and a block for each.
int ClusterSizeOf(const DecodeGroup& group, int64_t num_blocks) {
  const int parts = group.sequences[0].coarse.parts;
  for (const DecodeSequence& record : group.sequences) {
    if (record.coarse.parts != parts) return 1;
  }
  const bool is_size = parts > 1 && parts <= kLargestCluster;
  return is_size && group.num_items <= num_blocks ? parts : 1;
}

bool MergesByArrival(const DecodeGroup& group) {
  if (!group.combines || group.num_items > group.num_blocks) return false;
  for (const DecodeSequence& record : group.sequences) {
    if (record.coarse.slots > kMostMerged) return false;
  }
  return true;
}

}  // namespace

Divisor Divisor::Of(uint32_t divisor) {
  const int shift = 31 + std::bit_width(divisor - 1);
  return {
      static_cast<uint32_t>(((uint64_t{1} << shift) + divisor - 1) / divisor),
      shift};
}

int64_t RowsOfTile(DecodeWidth width) {
  if (width == DecodeWidth::kFew) return DecodeFew128::kRows;
  return width == DecodeWidth::k128 ? 128 : 64;
}

bool ModifiesScores(const AttentionProblem& problem) {
  return problem.softcap > 0 || !problem.alibi_slopes.empty() ||
         !(problem.softmax_scale > 0);
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
  return PartialSlotFloats(row.head_dim, static_cast<int>(RowsOfTile(width))) *
         sizeof(float);
}

int64_t DecodeGroup::scratch_bytes() const {
  const bool is_largest =
      decode_class == DecodeClass::k256 && width == DecodeWidth::k128;
  if (!(is_largest ? keeps_chunks : keeps_quads)) return 0;
  const int levels =
      is_largest ? Decode256Wide::kScratchLevels : Decode128::kScratchLevels;
  return num_blocks * levels *
         ScratchFloats(RowOf(decode_class).head_dim,
                       static_cast<int>(RowsOfTile(width))) *
         static_cast<int64_t>(sizeof(float));
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
    const bool is_few = group.width == DecodeWidth::kFew;
    group.num_blocks = num_sms * BlocksPerSm(group);
    for (DecodeSequence& record : group.sequences) {
      const AttentionProblem& problem = *problems[record.problem];
      const int64_t mine =
          strands_of(record) * (record.key_end - record.key_begin);
      const int64_t rows = std::min(RowsOfTile(group.width),
                                    record.len_q * problem.group_size());
      const DecodeLevels levels = {
          is_few ? std::span<const int64_t>(kFewUnits) : kSplitUnits,
          is_few ? kFewItemKeys : kSplitItemKeys,
          is_few ? 0 : rows * kSlotKeysPerRow, is_few,
          // Of several records the first one's would not come last.
          is_few && group.sequences.size() == 1 &&
              MayHaveTails(RowOf(group.decode_class).head_dim)};
      group.modifies_scores |= ModifiesScores(problem);
      group.combine_blocks = std::max<int>(
          group.combine_blocks,
          static_cast<int>(
              DivideUp(rows, CombineRows(RowOf(group.decode_class).head_dim))));
      DivideRecord(group, record, problem.num_kv_heads,
                   std::max<int64_t>(
                       1, group.num_blocks * mine / std::max<int64_t>(1, keys)),
                   levels);
    }
    group.num_blocks = std::min(group.num_blocks, group.num_items);
    // The last block to arrive combines few rows.
    group.combines &= !is_few;
    group.keeps_quads &= !is_few;
    group.keeps_chunks &= !is_few;
    if (!is_few) {
      group.cluster_size = ClusterSizeOf(group, num_sms * BlocksPerSm(group));
      group.merges_by_arrival = MergesByArrival(group);
    }
  }
  return groups;
}

}  // namespace attendant::kernels::sm90
