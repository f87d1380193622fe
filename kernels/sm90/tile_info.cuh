// One tile of work: what the producer looks up and the consumers read.
#pragma once

#include <cstdint>

#include "kernels/sm90/kernel_params.h"

namespace attendant::kernels::sm90 {

inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;

// In shared memory. Rows count from row0, the tile's first row in its sequence.
struct TileInfo {
  int32_t is_valid;     // 0 = no more tiles
  int32_t block_begin;  // key blocks [begin, end) that some row sees
  int32_t block_end;
  int32_t row0;      // a warpgroup whose first row is negative has none
  int32_t num_rows;  // rows of the sequence from row0 on (may exceed the tile)
  int32_t len_kv;
  int32_t low_offset, high_offset;  // of SequenceRecord
  int32_t diagonal_shift;
  int32_t scrub;  // keys beyond len_kv in the last block are someone else's
  float scale_log2;
  float softcap;
  float slope_log2;
  float sink_log2;  // -inf = none
  int32_t head_dim_v;
  uint8_t out_is_fp32;
  uint8_t out_is_vectorized;
  void* out;   // of row0
  float* lse;  // of row0; null = not asked
  int64_t out_row_stride;
  // For the loaders: the maps and where the tile lies in them.
  const CUtensorMap* maps;
  int32_t q_row, q_head, q_batch;
  int32_t kv_row;
  int32_t k_head, k_batch;
  int32_t v_head, v_batch;
};

// Which of a problem's rows a tile is.
struct TilePlace {
  int32_t head;
  int32_t batch;
  int32_t row0;
};

// Tiles of a record go section by section, a few heads each, so that all tiles
// of a head are at work together and its K and V pass through L2 once. Within a
// section the last rows go first (with causality they see most), heads
// innermost. The last section is larger: there, longest first evens out when
// the blocks finish.
__device__ __forceinline__ TilePlace PlaceOf(const SequenceRecord& sequence,
                                             int32_t num_q_heads, int tile_q,
                                             int32_t tile) {
  int32_t in_section = tile - sequence.first_tile;
  const int32_t heads = sequence.batch_count * num_q_heads;
  const int32_t main_heads = heads - sequence.tail_heads;
  int32_t first_head = main_heads;
  int32_t section_heads = sequence.tail_heads;
  if (in_section < main_heads * sequence.num_m_tiles) {
    section_heads = sequence.section_heads;
    const int32_t section_tiles = section_heads * sequence.num_m_tiles;
    first_head = in_section / section_tiles * section_heads;
  }
  in_section -= first_head * sequence.num_m_tiles;
  const int32_t from_last = in_section / section_heads;
  const int32_t head = first_head + in_section - from_last * section_heads;
  return {head % num_q_heads, sequence.batch_begin + head / num_q_heads,
          (sequence.num_m_tiles - 1 - from_last) * tile_q - sequence.row_shift};
}

// Key blocks [begin, end) that some row of a tile sees.
struct BlockRange {
  int32_t begin, end;
};

__device__ __forceinline__ BlockRange BlocksOf(const SequenceRecord& sequence,
                                               int32_t row0, int tile_q,
                                               int tile_kv) {
  const int32_t last_row = min(row0 + tile_q, sequence.len_q) - 1;
  const int32_t begin = max(0, row0 + sequence.low_offset);
  const int32_t end = min(sequence.len_kv, last_row + sequence.high_offset);
  if (end <= begin) return {0, 0};
  return {begin / tile_kv, (end + tile_kv - 1) / tile_kv};
}

// Writes field by field: the producer has few registers.
__device__ __forceinline__ void FillInfo(const CUtensorMap* maps,
                                         const ProblemRecord& problem,
                                         const SequenceRecord& sequence,
                                         const TilePlace& place,
                                         const BlockRange& blocks,
                                         TileInfo& info) {
  info.is_valid = 1;
  info.block_begin = blocks.begin;
  info.block_end = blocks.end;
  info.row0 = place.row0;
  info.num_rows = sequence.len_q - place.row0;
  info.len_kv = sequence.len_kv;
  info.low_offset = sequence.low_offset;
  info.high_offset = sequence.high_offset;
  info.diagonal_shift = sequence.diagonal_shift;
  info.scrub = sequence.kv_begin + sequence.len_kv != problem.rows_kv;
  info.scale_log2 = problem.scale_log2;
  info.softcap = problem.softcap;
  info.slope_log2 =
      problem.slopes == nullptr
          ? 0.0f
          : problem.slopes[place.batch * problem.slopes_batch_stride +
                           place.head] *
                kLog2E;
  info.sink_log2 =
      problem.sinks == nullptr ? -INFINITY : problem.sinks[place.head] * kLog2E;
  info.head_dim_v = problem.head_dim_v;
  info.out_is_fp32 = problem.out_is_fp32;
  info.out_is_vectorized = problem.out_is_vectorized;
  info.out_row_stride = problem.out_row_stride;
  const int64_t row = static_cast<int64_t>(sequence.q_begin) + place.row0;
  const int64_t element = place.batch * problem.out_batch_stride +
                          row * problem.out_row_stride +
                          place.head * problem.out_head_stride;
  info.out =
      static_cast<char*>(problem.out) + element * (problem.out_is_fp32 ? 4 : 2);
  info.lse = problem.lse == nullptr
                 ? nullptr
                 : problem.lse + place.batch * problem.lse_batch_stride +
                       place.head * problem.lse_head_stride + row;
  info.maps = maps;
  info.q_row = sequence.q_begin + place.row0;
  info.q_head = place.head * problem.q.head;
  info.q_batch = place.batch * problem.q.batch;
  const int32_t kv_head = place.head / problem.group_size;
  info.kv_row = sequence.kv_begin;
  info.k_head = kv_head * problem.k.head;
  info.k_batch = place.batch * problem.k.batch;
  info.v_head = kv_head * problem.v.head;
  info.v_batch = place.batch * problem.v.batch;
}

}  // namespace attendant::kernels::sm90
