#include "kernels/sm90/work_list.h"

#include <algorithm>
#include <cmath>

#include "kernels/sm90/decode_plan.h"
#include "kernels/sm90/key_offsets.h"
#include "kernels/sm90/tile_table.h"

namespace attendant::kernels::sm90 {
namespace {

// Tiles of the last section, about eight or three for each multiprocessor:
// measured on an H200, long sequences gain from an even finish, short ones from
// heads whose K and V pass through L2 once.
constexpr int64_t kTailTilesLong = 1024;
constexpr int64_t kTailTilesShort = 384;
constexpr int32_t kLongInTiles = 32;

// Heads of the last section: whole KV heads. With equal tiles there is nothing
// to even out.
int32_t TailHeads(const AttentionProblem& problem, const SequenceRecord& record,
                  int64_t kv_heads) {
  if (record.high_offset == kMaxPosition) {
    return static_cast<int32_t>(problem.group_size());
  }
  const int64_t tiles =
      record.num_m_tiles >= kLongInTiles ? kTailTilesLong : kTailTilesShort;
  const int64_t tiles_of_kv_head =
      std::max<int64_t>(1, record.num_m_tiles * problem.group_size());
  const int64_t tail = std::clamp<int64_t>(
      (tiles + tiles_of_kv_head - 1) / tiles_of_kv_head, 1, kv_heads);
  return static_cast<int32_t>(tail * problem.group_size());
}

// With a causal mask the last tile sees the most keys and is to be full.
int32_t RowShift(const SequenceRecord& record, int tile_q) {
  if (record.num_m_tiles == 0 || record.high_offset == kMaxPosition) return 0;
  const int32_t idle = record.num_m_tiles * tile_q - record.len_q;
  return idle / kWarpgroupRows * kWarpgroupRows;
}

// Keys that the longest row of the record may see.
int64_t MostKeys(const SequenceRecord& record) {
  const int64_t end =
      std::min<int64_t>(record.len_kv, static_cast<int64_t>(record.len_q) - 1 +
                                           record.high_offset);
  const int64_t window =
      static_cast<int64_t>(record.high_offset) - record.low_offset;
  return std::min(end, window);
}

}  // namespace

bool NeedsScoreMod(const AttentionProblem& problem) {
  return problem.softcap > 0 || !problem.alibi_slopes.empty() ||
         !(problem.softmax_scale > 1e-30f && problem.softmax_scale < 1e30f);
}

ProblemExtents ExtentsOf(const AttentionProblem& problem) {
  int64_t rows_q = 0;
  int64_t rows_kv = 0;
  for (const SequenceBounds& sequence : problem.sequences) {
    rows_q = std::max(rows_q, sequence.q_begin + sequence.len_q);
    rows_kv = std::max(rows_kv, sequence.kv_begin + sequence.len_kv);
  }
  return {{problem.head_dim, rows_q, problem.num_q_heads, problem.batch},
          {problem.head_dim, rows_kv, problem.num_kv_heads, problem.batch},
          {problem.head_dim_v, rows_kv, problem.num_kv_heads, problem.batch}};
}

ProblemRecord RecordOf(const AttentionProblem& problem) {
  const ProblemExtents extents = ExtentsOf(problem);
  ProblemRecord record = {};
  record.out = problem.out.data;
  record.lse = problem.lse;
  record.out_batch_stride = problem.out.batch_stride;
  record.out_row_stride = problem.out.row_stride;
  record.out_head_stride = problem.out.head_stride;
  record.lse_batch_stride = problem.lse_batch_stride;
  record.lse_head_stride = problem.lse_head_stride;
  record.slopes_batch_stride = problem.alibi_batch_stride;
  record.q = FactorsOf(problem.q, extents.q);
  record.k = FactorsOf(problem.k, extents.k);
  record.v = FactorsOf(problem.v, extents.v);
  record.num_q_heads = static_cast<int32_t>(problem.num_q_heads);
  record.group_size = static_cast<int32_t>(problem.group_size());
  record.head_dim_v = static_cast<int32_t>(problem.head_dim_v);
  record.rows_kv = static_cast<int32_t>(extents.k.rows);
  record.scale_log2 = problem.softmax_scale * 1.4426950408889634f;
  record.softcap = problem.softcap;
  record.out_is_fp32 = problem.output_dtype == DataType::kFloat32;
  const auto is_aligned = [](int64_t elements) { return elements % 8 == 0; };
  record.out_is_vectorized =
      !record.out_is_fp32 && is_aligned(problem.head_dim_v) &&
      reinterpret_cast<uintptr_t>(problem.out.data) % 16 == 0 &&
      is_aligned(problem.out.row_stride) &&
      is_aligned(problem.out.head_stride) &&
      is_aligned(problem.out.batch_stride);
  return record;
}

std::vector<SequenceRecord> SequencesOf(const AttentionProblem& problem,
                                        int32_t index, int tile_q) {
  std::vector<SequenceRecord> records;
  const bool uniform = problem.sequences.size() == 1;
  for (size_t b = 0; b < problem.sequences.size(); ++b) {
    const SequenceBounds& bounds = problem.sequences[b];
    const int64_t batch_count = uniform ? problem.batch : 1;
    if (bounds.len_q == 0 || batch_count * problem.num_q_heads == 0) continue;
    SequenceRecord record = {};
    record.problem = index;
    record.batch_begin = static_cast<int32_t>(b);
    record.batch_count = static_cast<int32_t>(batch_count);
    record.num_m_tiles =
        IsThin(problem, bounds)
            ? 0
            : static_cast<int32_t>((bounds.len_q + tile_q - 1) / tile_q);
    record.q_begin = static_cast<int32_t>(bounds.q_begin);
    record.len_q = static_cast<int32_t>(bounds.len_q);
    record.kv_begin = static_cast<int32_t>(bounds.kv_begin);
    record.len_kv = static_cast<int32_t>(bounds.len_kv);
    const KeyOffsets offsets = KeyOffsetsOf(problem, bounds);
    record.low_offset = offsets.low;
    record.high_offset = offsets.high;
    record.diagonal_shift = offsets.diagonal_shift;
    record.row_shift = RowShift(record, tile_q);
    record.section_heads = static_cast<int32_t>(problem.group_size());
    record.tail_heads =
        TailHeads(problem, record, batch_count * problem.num_kv_heads);
    records.push_back(record);
  }
  return records;
}

int64_t NumberTiles(std::vector<SequenceRecord>& records,
                    const std::vector<int32_t>& heads_of_problem) {
  std::stable_sort(records.begin(), records.end(),
                   [](const SequenceRecord& a, const SequenceRecord& b) {
                     return MostKeys(a) > MostKeys(b);
                   });
  int64_t tiles = 0;
  for (SequenceRecord& record : records) {
    record.first_tile = static_cast<int32_t>(tiles);
    tiles += static_cast<int64_t>(record.num_m_tiles) * record.batch_count *
             heads_of_problem[record.problem];
  }
  return tiles;
}

}  // namespace attendant::kernels::sm90
