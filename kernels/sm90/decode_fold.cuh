// Folding the partial results of a strand's items, a thread's pieces of each:
// what the combine kernel and the clusters share.
#pragma once

#include <cstdint>

#include "kernels/sm90/decode_item.cuh"
#include "kernels/sm90/decode_merge.cuh"
#include "kernels/sm90/decode_output.cuh"
#include "kernels/sm90/decode_table.h"

namespace attendant::kernels::sm90 {

// `load(begin, count)` brings slots, at most kBatch of them, where `take(j)`
// finds the j-th. Called by whole warps. A loop rather than unrolled code: each
// instruction runs a few times at most, and fetching it takes longer.
template <int kBatch, typename Pieces, typename Load, typename Take>
__device__ __forceinline__ Pieces FoldInOrder(const DecodeItem& item,
                                              const Load& load,
                                              const Take& take) {
  // Chunks, quads or octets (unit 1, 4, 8) a quad and an octet, less 1.
  const int in_quad = item.unit == 1 ? kSplitQuad - 1 : 0;
  const int in_octet = item.unit == 1            ? kSplitOctet - 1
                       : item.unit == kSplitQuad ? kSplitOctet / kSplitQuad - 1
                                                 : 0;
  Pieces quad, octet, strand;
  for (int begin = 0; begin < item.slots; begin += kBatch) {
    const int count = min(kBatch, item.slots - begin);
    load(begin, count);
#pragma unroll 1
    for (int j = 0; j < count; ++j) {
      const int next = item.first_unit + begin + j + 1;
      const bool is_last = begin + j + 1 == item.slots;
      quad.Append(take(j));
      if ((next & in_quad) != 0 && !is_last) continue;
      octet.Append(quad);
      quad = Pieces();
      if ((next & in_octet) != 0 && !is_last) continue;
      strand.Append(octet);
      octet = Pieces();
    }
    __syncwarp();  // before the next are loaded
  }
  return strand;
}

__device__ __forceinline__ void TakePiece(const float4& from, float (&o)[4]) {
  o[0] = from.x;
  o[1] = from.y;
  o[2] = from.z;
  o[3] = from.w;
}

// `rows`: (m, l) of a warp's 16 rows.
template <typename Pieces>
__device__ __forceinline__ void TakeRows(const float2* rows, Pieces& pieces) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float2 ml = rows[threadIdx.x % 32 / 4 + 8 * r];
    pieces.m[r] = ml.x;
    pieces.l[r] = ml.y;
  }
}

// Two rows' columns to their place: two from `column` on, two from 8 further.
template <int kPieces, typename Element>
__device__ __forceinline__ void StorePieces(const DecodeParams& params,
                                            const DecodeItem& item,
                                            const FoldedPieces<kPieces>& strand,
                                            int row, int column) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (row + 8 * r >= item.num_rows) continue;
    const RowTarget target = TargetOf(item, row + 8 * r);
    const RowEnd end = FinishRow(strand.m[r], strand.l[r], target.sink_log2);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const float values[2] = {__fmul_rn(strand.o[i][2 * r], end.inverse),
                               __fmul_rn(strand.o[i][2 * r + 1], end.inverse)};
      StoreColumns<Element>(params, *item.problem, target.out, column + 8 * i,
                            values);
    }
    if (target.lse != nullptr && column == 0) *target.lse = end.lse;
  }
}

}  // namespace attendant::kernels::sm90
