// What the device reads of a launch: plain records, one blob a launch. The host
// builds it (launch_plan.h); the kernels find their work in it (work.cuh).
#pragma once

#include <cstddef>
#include <cstdint>

namespace attendant::kernels::sm80 {

// Bounds on positions, so that row and key arithmetic fits 32 bits.
inline constexpr int64_t kMaxSequence = int64_t{1} << 30;
inline constexpr int64_t kMaxTiles = (int64_t{1} << 31) - 1;

enum class DeviceMask : int32_t {
  kNone,
  kBoolBytes,
  kBoolBits,
  kFloat32,   // additive
  kFloat16,   // additive
  kBFloat16,  // additive
};

// One AttentionProblem. Pointers to device memory; strides in elements (mask:
// in entries, or bytes for a boolean one).
struct ProblemRecord {
  const void* q;  // [batch, rows, num_q_heads, head_dim]
  const void* k;  // [batch, rows, num_kv_heads, head_dim]
  const void* v;  // [batch, rows, num_kv_heads, head_dim_v]
  void* out;      // [batch, rows, num_q_heads, head_dim_v]
  float* lse;     // [batch, num_q_heads, rows]; null = not asked
  const void* mask;
  int64_t q_batch, q_row, q_head;
  int64_t k_batch, k_row, k_head;
  int64_t v_batch, v_row, v_head;
  int64_t out_batch, out_row, out_head;
  int64_t lse_batch, lse_head;
  int64_t mask_batch, mask_row, mask_head;
  int64_t alibi_batch;
  int32_t alibi_offset;  // in the blob's floats; -1 = none
  int32_t sinks_offset;  // likewise
  int32_t head_dim, head_dim_v;
  int32_t num_q_heads;
  int32_t group;  // query heads that share one KV head
  DeviceMask mask_kind;
  int32_t mask_padded_positions;  // boolean
  float softmax_scale;
  float softcap;        // 0 = none
  int32_t copy_bytes;   // 16, 8, 4 or 2: widest copy that alignment allows
  int32_t output_fp32;  // boolean
  int32_t wide_output;  // boolean: rows of out may be stored 16 bytes at a time
};

// Sequences alike: one entry of a varlen problem, or all of a batch.
struct Run {
  int64_t q_begin, kv_begin;  // first rows in the batch entry
  int64_t partial_o;          // split: first float of this run's O partials
  int64_t partial_ml;         // split: first float of this run's (m, l) pairs
  int64_t first_row;          // rows of all runs before this one (see num_rows)
  int32_t diagonal_shift;
  int32_t problem;
  int32_t batch_begin, batch_count;
  int32_t len_q, len_kv;
  // Row i sees keys [max(0, i + lo_shift), min(len_kv, i + hi_shift)).
  int32_t lo_shift, hi_shift;
  int32_t pack;         // query heads that share a tile's rows: group, or 1
  int32_t head_units;   // num_q_heads / pack
  int32_t tile_rows;    // rows (position, packed head) of a tile
  int32_t splits;       // of the keys; 1 = no partials
  int32_t split_chunk;  // keys of a split, a multiple of the key tile
};
// Output rows of a run: batch_count * num_q_heads * len_q, in that order.

// Tiles [first_tile, next segment's first_tile): m-tiles [m_begin, m_begin +
// m_count) of all batch entries, head units and splits of a run. Within it:
// splits innermost, then head units in sections of `section`, then m downward
// (longest first under a causal mask), then sections.
struct Segment {
  uint32_t first_tile;
  int32_t run;
  int32_t m_begin, m_count;
  int32_t section;
};

// Small blobs travel in the kernel's parameters and save a copy.
inline constexpr int kInlineBlobBytes = 2816;

// Byte offsets into the blob, and the rest of a launch's arguments.
struct LaunchArgs {
  const std::byte* blob;  // device memory, unless the blob is inline
  float* partials;
  int32_t* repair_flag;
  uint32_t num_segments, num_runs;
  uint32_t runs_offset, segments_offset, floats_offset;
  int64_t num_rows;       // combine, repair: rows to look at
  int32_t q_rows;         // rows of the Q tile in shared memory
  int32_t ring_slots;     // K and V tiles in shared memory, 2 or 4
  int32_t inline_blob;    // boolean
  int32_t natural_units;  // boolean, combine: of partial m; see online_softmax
  // A launch of one segment has it, its run and its problem here: parameters
  // come from the constant cache, where the blob's bytes take three dependent
  // loads.
  int32_t single;  // boolean
  Segment segment;
  Run run;
  ProblemRecord problem;
  alignas(16) std::byte blob_inline[kInlineBlobBytes];
};
static_assert(sizeof(LaunchArgs) < 4096, "kernel parameters before sm_90");

}  // namespace attendant::kernels::sm80
