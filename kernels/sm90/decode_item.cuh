// One block's share of a strand, looked up by every thread alike.
#pragma once

#include <cstdint>

#include "kernels/sm90/decode_params.h"
#include "kernels/sm90/ptx/register.cuh"

namespace attendant::kernels::sm90 {

struct DecodeItem {
  const DecodeProblem* problem;
  const DecodeSequence* sequence;
  const CUtensorMap* maps;
  int strand;  // within the sequence record
  int batch;
  int kv_head;
  int row0;      // first packed row
  int num_rows;  // packed rows from row0 on, at most kTileQ
  int chunk_begin, chunk_end;
  int key_begin, key_end;
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

__device__ __forceinline__ void SetStrand(DecodeItem& item, int strand,
                                          int tile_q) {
  const DecodeSequence& sequence = *item.sequence;
  const DecodeProblem& problem = *item.problem;
  item.strand = strand;
  const int row_tile = strand % sequence.row_tiles;
  const int pair = strand / sequence.row_tiles;
  item.kv_head = pair % problem.num_kv_heads;
  item.batch = sequence.batch_begin + pair / problem.num_kv_heads;
  item.row0 = row_tile * tile_q;
  item.num_rows = min(tile_q, sequence.len_q * problem.group_size - item.row0);
}

// kGrouped: records lie in global memory. Otherwise every field is read from
// the parameters' constant bank: a pointer that could be either would make each
// read a load through L1, cold at the start.
template <bool kGrouped>
__device__ __forceinline__ DecodeItem FindItem(const DecodeParams& params,
                                               int index, int tile_q) {
  DecodeItem item;
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
  const int local = index - sequence.first_item;
  const int part = local % sequence.items_per_strand;
  SetStrand(item, local / sequence.items_per_strand, tile_q);
  item.chunk_begin = part * sequence.chunks_per_item;
  item.chunk_end =
      min(sequence.num_chunks, item.chunk_begin + sequence.chunks_per_item);
  item.key_begin = sequence.key_begin + item.chunk_begin * sequence.chunk_keys;
  item.key_end = min(sequence.key_end,
                     sequence.key_begin + item.chunk_end * sequence.chunk_keys);
  return item;
}

}  // namespace attendant::kernels::sm90
