// One item: a part of a strand, looked up by its number.
#pragma once

#include <cstdint>

#include "kernels/sm90/decode_params.h"
#include "kernels/sm90/ptx/math.cuh"
#include "kernels/sm90/ptx/register.cuh"

namespace attendant::kernels::sm90 {

// a / b for 0 <= a < 2^20: a division takes some 40 instructions, and where a
// kernel is short, fetching them takes longer than running them.
class SmallDivisor {
 public:
  explicit __device__ __forceinline__ SmallDivisor(int b)
      : inverse_(ptx::rcp_approx(static_cast<float>(b))) {}
  __device__ __forceinline__ int Divide(int a) const {
    return static_cast<int>((static_cast<float>(a) + 0.5f) * inverse_);
  }

 private:
  float inverse_;
};

// What an item's number is looked up for, as it lies in shared memory.
struct DecodeItemNumbers {
  int32_t record;  // of the sequence; -1 = no more items
  int32_t strand;  // within the sequence record
  int32_t batch;
  int32_t kv_head;
  int32_t row0;      // first packed row
  int32_t num_rows;  // packed rows from row0 on, at most a tile's
  int32_t parts;     // items of the strand
  int32_t part;      // which of them
  // Partial results of the strand, in the launch: `slots` from first_slot on,
  // `unit` chunks each; this item's from `slot` on.
  int32_t unit;
  int32_t slots;
  int32_t first_slot;
  int32_t slot;
  int32_t first_unit;  // first_chunk / unit
  // Chunk numbers count from key 0; items end at multiples of their size.
  int32_t chunk_begin, chunk_end;
  int32_t key_begin, key_end;
  int32_t chunk_keys, len_kv;  // the sequence's
};

struct DecodeItem : DecodeItemNumbers {
  // Few rows, see DecodeTails: 0 = the item neither has a tail nor is one.
  int tail_chunks = 0;
  bool is_tail = false;
  int tail_slot, tail_word;
  const DecodeProblem* problem;
  const DecodeSequence* sequence;
  const CUtensorMap* maps;
};

// The last record whose first item is not after `item`.
__device__ __forceinline__ int FindDecodeSequence(const DecodeParams& params,
                                                  int item) {
  int begin = 0;
  int end = params.num_sequences;
  while (end - begin > 1) {
    const int middle = (begin + end) / 2;
    (params.global_sequences[middle].first_item <= item ? begin : end) = middle;
  }
  return begin;
}

// Which rows: `pair` counts KV heads and their row tiles, tiles fastest.
__device__ __forceinline__ void SetRows(DecodeItem& item, int pair,
                                        int tile_rows) {
  const DecodeSequence& sequence = *item.sequence;
  const bool has_tiles = sequence.row_tiles > 1;
  item.kv_head = has_tiles ? sequence.by_row_tiles.Divide(pair) : pair;
  item.row0 =
      has_tiles ? (pair - item.kv_head * sequence.row_tiles) * tile_rows : 0;
  item.num_rows =
      min(tile_rows, sequence.len_q * item.problem->group_size - item.row0);
}

// kGrouped: records lie in global memory. Otherwise every field is read from
// the parameters' constant bank: a pointer that could be either would make each
// read a load through L1, cold at the start.
template <bool kGrouped>
__device__ __forceinline__ void SetRecord(const DecodeParams& params,
                                          int record, DecodeItem& item) {
  item.record = record;
  if constexpr (kGrouped) {
    item.sequence = params.global_sequences + record;
    item.problem = params.global_problems + item.sequence->problem;
    item.maps =
        params.global_maps + kDecodeMapsPerProblem * item.sequence->problem;
  } else {
    item.problem = &params.problem;
    item.sequence = &params.sequence;
    item.maps = params.maps;
  }
}

template <bool kGrouped>
__device__ __forceinline__ DecodeItem ItemOf(const DecodeParams& params,
                                             const DecodeItemNumbers& numbers) {
  DecodeItem item;
  static_cast<DecodeItemNumbers&>(item) = numbers;
  SetRecord<kGrouped>(params, numbers.record, item);
  return item;
}

// kMayCluster: the launch may be one of clusters, whose blocks' items are the
// parts of one strand. kTails: it may have tails.
template <bool kGrouped, bool kMayCluster, bool kTails = false>
__device__ __forceinline__ DecodeItem FindItem(const DecodeParams& params,
                                               int index, int tile_rows) {
  DecodeItem item;
  SetRecord<kGrouped>(params, kGrouped ? FindDecodeSequence(params, index) : 0,
                      item);
  const DecodeSequence& sequence = *item.sequence;
  const DecodeSegment& coarse = sequence.coarse;
  const DecodeSegment& fine = sequence.fine;
  int local = index - sequence.first_item;
  // More rows (kMayCluster) have no fine segments. A tail is looked up as the
  // item that it was cut off.
  const DecodeTails& tails = sequence.tails;
  const bool has_tails = kTails && tails.items > 0;
  item.is_tail = has_tails && local >= coarse.items;
  const bool is_fine = !kMayCluster && !has_tails && local >= coarse.items;
  if (is_fine) local -= coarse.items;
  if (item.is_tail) local += tails.first_item - coarse.items;
  const int tail = local - tails.first_item;
  item.unit = is_fine ? fine.unit : coarse.unit;
  item.parts = is_fine ? fine.parts : coarse.parts;
  item.slots = is_fine ? fine.slots : coarse.slots;
  item.first_unit = is_fine ? fine.first_unit : coarse.first_unit;
  const int grain = is_fine ? fine.grain : coarse.grain;
  const int first_batch = is_fine ? fine.first_batch : coarse.first_batch;
  const int first_slot = is_fine ? fine.first_slot : coarse.first_slot;
  const int first_part = is_fine ? fine.first_part : coarse.first_part;
  const Divisor by_parts = {
      is_fine ? fine.by_parts.multiplier : coarse.by_parts.multiplier,
      is_fine ? fine.by_parts.shift : coarse.by_parts.shift};
  // Heads run fastest: blocks that work side by side read the same keys' heads,
  // which lie side by side in the common layouts. In clusters parts do.
  const int pairs = item.problem->num_kv_heads * sequence.row_tiles;
  int part, pair, batch;
  if (kMayCluster && params.cluster_size > 1) {
    const int strand = by_parts.Divide(local);
    part = local - strand * item.parts;
    batch = sequence.by_pairs.Divide(strand);
    pair = strand - batch * pairs;
  } else {
    const int rest = sequence.by_pairs.Divide(local);
    pair = local - rest * pairs;
    batch = by_parts.Divide(rest);
    part = rest - batch * item.parts;
  }
  SetRows(item, pair, tile_rows);
  item.part = part;
  item.strand = (first_batch + batch) * pairs + pair;
  item.batch = sequence.batch_begin + first_batch + batch;
  const int index_of_all = first_part + part;
  item.chunk_begin = max(sequence.first_chunk, index_of_all * grain);
  item.chunk_end = min(sequence.end_chunk, (index_of_all + 1) * grain);
  if (has_tails && tail >= 0) {
    const int cut = item.chunk_end - tails.chunks;
    (item.is_tail ? item.chunk_begin : item.chunk_end) = cut;
    item.tail_chunks = tails.chunks;
    item.tail_slot = sequence.first_slot + tails.first_slot +
                     tail * (DecodeTails::kKept + tails.chunks);
    item.tail_word = tails.first_word + tail;
  }
  item.first_slot =
      sequence.first_slot + first_slot + (batch * pairs + pair) * item.slots;
  item.slot =
      item.first_slot +
      (grain == item.unit ? part : item.chunk_begin - sequence.first_chunk);
  item.chunk_keys = sequence.chunk_keys;
  item.len_kv = sequence.len_kv;
  item.key_begin = item.chunk_begin * sequence.chunk_keys;
  item.key_end = min(sequence.key_end, item.chunk_end * sequence.chunk_keys);
  return item;
}

}  // namespace attendant::kernels::sm90
