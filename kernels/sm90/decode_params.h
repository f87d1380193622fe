// What the host hands to the decode kernels: plain data, read by both sides.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/sm90/kernel_params.h"

namespace attendant::kernels::sm90 {

// Tensor maps of one problem, in this order.
enum DecodeMapIndex {
  kDecodeMapK,
  kDecodeMapV,
  kDecodeMapQ,  // more rows, see q_has_map
  kDecodeMapsPerProblem
};

// A division by a number that the host knows: a division by one that it does
// not takes a kernel some 150 clocks.
struct Divisor {
  uint32_t multiplier;
  int32_t shift;

  static Divisor Of(uint32_t divisor);  // 1..2^31 - 1

  // For 0 <= a < 2^31.
  constexpr int32_t Divide(int32_t a) const {
    return static_cast<int32_t>(
        (uint64_t{static_cast<uint32_t>(a)} * multiplier) >> shift);
  }
};

struct DecodeProblem {
  static constexpr int kQBoxRows = 64;
  const void* q;  // [batch, rows, heads, head_dim] by strides, in elements
  void* out;
  float* lse;           // null = not asked
  const float* slopes;  // device; null = no ALiBi
  const float* sinks;   // device; null = none
  int64_t q_batch_stride, q_row_stride, q_head_stride;
  int64_t out_batch_stride, out_row_stride, out_head_stride;
  int64_t lse_batch_stride, lse_head_stride;
  int64_t slopes_batch_stride;
  CoordinateFactors k, v, q_by_heads;
  int32_t num_kv_heads;
  int32_t group_size;
  int32_t head_dim;
  int32_t head_dim_v;
  int32_t rows_kv;   // rows of the K and V maps: copies fill zeros beyond
  float scale_log2;  // softmax_scale * log2(e), any finite value
  float softcap;     // 0 = none
  uint8_t out_is_fp32;
  // q, its strides and head_dim: multiples of 16 bytes; out, its strides and
  // head_dim_v: multiples of 8 elements.
  uint8_t q_is_vectorized;
  uint8_t out_is_vectorized;
  // Q's map has boxes of 64 packed rows: (columns, heads, rows, batch).
  uint8_t q_has_map;
  uint8_t modifies_scores;  // softcap, ALiBi or a scale that is not positive
};

// More rows: what merges strands of several items. In place: the blocks that
// did them, one item each, see ClusterMerge and StrandExchange.
enum class DecodeMerge : int32_t { kCombineKernel, kInCluster, kByArrival };

// Batch entries from first_batch on (of the record's) are cut alike: `grain`
// chunks an item, `parts` items a strand. Items run over batch entries, parts,
// KV heads and row tiles, tiles fastest (in clusters over parts last). Partial
// results, if parts > 1: one for each `unit` chunks (grain or 1), `slots` a
// strand, over batch entries, heads, tiles and chunks. first_part and
// first_unit: the first chunk's number over `grain` and over `unit`.
struct DecodeSegment {
  int32_t first_batch;
  int32_t items;
  int32_t grain;
  int32_t parts;
  int32_t unit;
  int32_t first_part;
  int32_t first_unit;
  Divisor by_parts;
  int32_t slots;
  int32_t first_slot;  // from the record's
};

// Few rows, of a launch's only record: coarse items from number first_item on
// leave their last `chunks` chunks to an item each, the tails, which come after
// all others; so blocks that would have one item less than others have work
// too. A tail's slots, from first_slot on (of the record's): what the item
// before it holds when it meets its tail, see FewFold, then the tail's chunks.
struct DecodeTails {
  static constexpr int kKept = 3;
  int32_t items;  // 0 = none
  int32_t first_item;
  int32_t chunks;
  int32_t first_slot;
  int32_t first_word;  // of the launch's arrivals, one a tail
};

// `batch_count` batch entries of equal bounds. Rows of a KV head's whole group
// are packed: packed row p is query row p / group_size of head p % group_size.
// A "strand" is (batch entry, KV head, tile of packed rows); its keys are cut
// into chunks whose length depends on the request alone; chunks are folded in
// one order, and several items may share a strand's chunks.
struct DecodeSequence {
  int32_t first_item;
  int32_t problem;
  int32_t batch_begin;
  int32_t batch_count;
  int32_t q_begin, len_q;
  int32_t kv_begin, len_kv;
  // Row i sees keys [i + low_offset, i + high_offset) within [0, len_kv).
  int32_t low_offset, high_offset;
  int32_t diagonal_shift;
  int32_t row_tiles;
  Divisor by_row_tiles;
  Divisor by_pairs;            // KV heads * row_tiles
  int32_t key_begin, key_end;  // that some row sees; begin is chunk-aligned
  int32_t chunk_keys;          // a multiple of the key block
  int32_t num_chunks;
  int32_t first_slot;    // partial results, see DecodeSegment
  int32_t num_slots;     // of all strands
  int32_t first_strand;  // of the launch's
  // Chunk c begins at key c * chunk_keys; [first, end) are those that some row
  // sees. Large pieces first, smaller ones to even out the end (few rows).
  int32_t first_chunk, end_chunk;
  DecodeSegment coarse, fine;
  DecodeTails tails;  // of coarse; then there is no fine
};

struct DecodeParams {
  CUtensorMap maps[kDecodeMapsPerProblem];
  DecodeProblem problem;
  DecodeSequence sequence;
  const CUtensorMap* global_maps;  // null = the members above are all
  const DecodeProblem* global_problems;
  const DecodeSequence* global_sequences;
  int32_t num_sequences;
  int32_t num_items;
  int32_t combine_blocks;  // of a strand; more rows only
  // More rows: blocks of a cluster, which do the items of one strand each; 1 =
  // no clusters.
  int32_t cluster_size;
  DecodeMerge merge;
  float* partials;  // see PartialSlot and FewSlot
  float* scratch;   // more rows: see KeptLevels
  LaunchCounters* counters;
  // Few rows: a word a strand and tail that counts finished items; more rows:
  // kArrivalWords, see ArrivalBoard. Zero in between.
  uint32_t* arrivals;
  int32_t* repair_flag;
  uint32_t scrub_exponent;  // see PrefillParams
};

}  // namespace attendant::kernels::sm90
