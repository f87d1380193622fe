// What the host hands to the sm90 kernels: plain data, read by both sides.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace attendant::kernels::sm90 {

// Positions and lengths stay below this, so that sums of three fit in int32.
inline constexpr int32_t kMaxPosition = 1 << 29;

// Tensor maps of one problem, in this order.
enum MapIndex { kMapQ, kMapK, kMapV, kMapsPerProblem };

// A coordinate is index * factor: 0 for what has size 1 or stride 0.
struct CoordinateFactors {
  int32_t head;
  int32_t batch;
};

struct ProblemRecord {
  void* out;            // [batch, rows, heads, head_dim_v] by strides, elements
  float* lse;           // null = not asked
  const float* slopes;  // device; null = no ALiBi
  const float* sinks;   // device; null = none
  int64_t out_batch_stride, out_row_stride, out_head_stride;
  int64_t lse_batch_stride, lse_head_stride;
  int64_t slopes_batch_stride;
  CoordinateFactors q, k, v;
  int32_t num_q_heads;
  int32_t group_size;  // query heads per KV head
  int32_t head_dim_v;  // the true one
  int32_t rows_kv;     // rows of the K and V maps: copies fill zeros beyond
  float scale_log2;    // softmax_scale * log2(e)
  float softcap;       // 0 = none
  uint8_t out_is_fp32;
  uint8_t out_is_vectorized;  // out and its strides are multiples of 16 bytes
};

// `batch_count` batch entries of equal bounds, all heads: num_m_tiles *
// batch_count * num_q_heads tiles, from first_tile on in the launch.
struct SequenceRecord {
  int32_t first_tile;
  int32_t problem;
  int32_t batch_begin;
  int32_t batch_count;
  int32_t num_m_tiles;
  // Tile m holds rows from m * tile rows - row_shift on: the multiple of 64
  // that leaves whole warpgroups idle in the first tile rather than in the
  // last.
  int32_t row_shift;
  // Of the (batch entry, head) pairs, the last tail_heads are one section; the
  // others go in sections of section_heads (which divides their number).
  int32_t section_heads;
  int32_t tail_heads;
  int32_t q_begin, len_q;
  int32_t kv_begin, len_kv;
  // Row i sees keys [i + low_offset, i + high_offset) within [0, len_kv).
  int32_t low_offset, high_offset;
  int32_t diagonal_shift;
};

// Counters of one launch, in `control`: zero before and after.
struct LaunchCounters {
  uint32_t next_tile;
  uint32_t finished_blocks;
  uint32_t reserved[2];
};

// One launch. A single sequence record lies in the parameters; several, with
// their problems and maps, in global memory.
struct PrefillParams {
  CUtensorMap maps[kMapsPerProblem];
  ProblemRecord problem;
  SequenceRecord sequence;
  const CUtensorMap* global_maps;  // null = the members above are all
  const ProblemRecord* global_problems;
  const SequenceRecord* global_sequences;
  int32_t num_sequences;
  int32_t num_tiles;
  LaunchCounters* counters;
  int32_t* repair_flag;
  // 0 in a first launch; in the repair's, the exponent bits of the type: values
  // of V that are not finite are read as 0 (see repair.h).
  uint32_t scrub_exponent;
};

}  // namespace attendant::kernels::sm90
