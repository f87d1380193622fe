// An item of the decode kernel for few rows, looked up by its number.
#pragma once

#include <cstdint>

#include "kernels/sm90/decode_item.cuh"

namespace attendant::kernels::sm90 {

struct DecodeFewItem : DecodeItem {
  // Chunk numbers count from key 0. Items of `unit` chunks end at multiples of
  // `unit`; the strand has `parts` of them, this is number `part`.
  int unit;
  int parts;
  int part;
  int slot;  // of this item, in the launch
};

template <bool kGrouped>
__device__ __forceinline__ DecodeFewItem FindFewItem(const DecodeParams& params,
                                                     int index) {
  DecodeFewItem item;
  if constexpr (kGrouped) {
    item.sequence = params.global_sequences + FindDecodeSequence(params, index);
    item.problem = params.global_problems + item.sequence->problem;
    item.maps =
        params.global_maps + kDecodeMapsPerProblem * item.sequence->problem;
  } else {
    item.problem = &params.problem;
    item.sequence = &params.sequence;
    item.maps = params.maps;
  }
  const DecodeSequence& sequence = *item.sequence;
  const DecodeProblem& problem = *item.problem;
  const DecodeSegment& coarse = sequence.coarse;
  const DecodeSegment& fine = sequence.fine;
  int local = index - sequence.first_item;
  const bool is_fine = local >= coarse.items;
  if (is_fine) local -= coarse.items;
  item.unit = is_fine ? fine.unit : coarse.unit;
  item.parts = is_fine ? fine.parts : coarse.parts;
  const int first_batch = is_fine ? fine.first_batch : coarse.first_batch;
  const int first_slot = is_fine ? fine.first_slot : coarse.first_slot;
  // Heads run fastest: blocks that work side by side read the same keys' heads,
  // which lie side by side in the common layouts.
  item.kv_head = local % problem.num_kv_heads;
  const int pair = local / problem.num_kv_heads;
  item.part = pair % item.parts;
  const int batch = pair / item.parts;
  item.slot = sequence.first_slot + first_slot +
              (batch * problem.num_kv_heads + item.kv_head) * item.parts +
              item.part;
  item.strand = (first_batch + batch) * problem.num_kv_heads + item.kv_head;
  item.batch = sequence.batch_begin + first_batch + batch;
  item.row0 = 0;
  item.num_rows = sequence.len_q * problem.group_size;
  const int unit_index = sequence.first_chunk / item.unit + item.part;
  item.chunk_begin = max(sequence.first_chunk, unit_index * item.unit);
  item.chunk_end = min(sequence.end_chunk, (unit_index + 1) * item.unit);
  item.key_begin = item.chunk_begin * sequence.chunk_keys;
  item.key_end = min(sequence.key_end, item.chunk_end * sequence.chunk_keys);
  return item;
}

}  // namespace attendant::kernels::sm90
