// The second kernel of a decode launch: merges strands of several items.
#pragma once

#include <cstdint>

#include "kernels/sm90/decode_item.cuh"
#include "kernels/sm90/decode_merge.cuh"
#include "kernels/sm90/decode_output.cuh"
#include "kernels/sm90/decode_table.h"
#include "kernels/sm90/ptx/cp_async.cuh"
#include "kernels/sm90/ptx/grid.cuh"
#include "kernels/sm90/ptx/mbarrier.cuh"

namespace attendant::kernels::sm90 {

inline constexpr int kCombineThreads = 256;
inline constexpr int kCombineBatch = 16;  // slots in flight

struct CombineStorage {
  float4 o[kCombineBatch][kCombineThreads];
  float2 rows[kCombineBatch][kCombineThreads / 32][16];
};

// Folds slots, a thread's piece of each. Loops rather than unrolled code: the
// kernel runs each instruction a few times at most, and fetching it takes
// longer.
template <typename Shape>
class SlotFold {
 public:
  // The piece i of `warp` of the consumers' warps.
  __device__ __forceinline__ SlotFold(const DecodeParams& params,
                                      const DecodeItem& item,
                                      CombineStorage& storage, int i, int warp)
      : item_(item),
        storage_(storage),
        lane_(threadIdx.x % 32),
        base_(PartialSlot<Shape>(params, item.first_slot)),
        piece_(base_.piece(i, 32 * warp + lane_)),
        rows_(base_.rows(16 * warp + lane_ % 16)) {}

  __device__ __forceinline__ FoldedPiece Run() {
    const int before = item_.sequence->first_chunk / item_.unit;
    const int per_quad = item_.unit == 1 ? kSplitQuad : 1;
    const int per_octet = max(1, kSplitOctet / item_.unit);
    FoldedPiece quad, octet, strand;
    for (int begin = 0; begin < item_.slots; begin += kCombineBatch) {
      const int count = min(kCombineBatch, item_.slots - begin);
      Load(begin, count);
#pragma unroll 1
      for (int j = 0; j < count; ++j) {
        const int next = before + begin + j + 1;
        const bool is_last = begin + j + 1 == item_.slots;
        Take(j, quad);
        if (next % per_quad != 0 && !is_last) continue;
        octet.Append(quad);
        quad = FoldedPiece();
        if (next % per_octet != 0 && !is_last) continue;
        strand.Append(octet);
        octet = FoldedPiece();
      }
      __syncwarp();  // before the next are loaded
    }
    return strand;
  }

 private:
  __device__ __forceinline__ void Load(int begin, int count) const {
    const int warp = threadIdx.x / 32;
#pragma unroll 1
    for (int j = 0; j < count; ++j) {
      const int64_t offset =
          static_cast<int64_t>(begin + j) * PartialSlot<Shape>::kFloats;
      ptx::cp_async_16(ptx::smem_address(&storage_.o[j][threadIdx.x]),
                       reinterpret_cast<const float*>(piece_) + offset, 16);
      if (lane_ < 16) {
        ptx::cp_async_8(ptx::smem_address(&storage_.rows[j][warp][lane_]),
                        reinterpret_cast<const float*>(rows_) + offset);
      }
    }
    ptx::cp_async_wait_all();
    __syncwarp();
  }

  // Appends slot j of those loaded.
  __device__ __forceinline__ void Take(int j, FoldedPiece& quad) const {
    FoldedPiece piece;
    const float4 o = storage_.o[j][threadIdx.x];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float2 ml = storage_.rows[j][threadIdx.x / 32][lane_ / 4 + 8 * r];
      piece.m[r] = ml.x;
      piece.l[r] = ml.y;
    }
    piece.o[0] = o.x;
    piece.o[1] = o.y;
    piece.o[2] = o.z;
    piece.o[3] = o.w;
    quad.Append(piece);
  }

  const DecodeItem& item_;
  CombineStorage& storage_;
  const int lane_;
  const PartialSlot<Shape> base_;
  const float4* const piece_;
  const float2* const rows_;
};

// Two rows' two columns to their place.
template <typename Element>
__device__ __forceinline__ void StorePiece(const DecodeParams& params,
                                           const DecodeItem& item,
                                           const FoldedPiece& strand, int row,
                                           int column) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (row + 8 * r >= item.num_rows) continue;
    const RowTarget target = TargetOf(item, row + 8 * r);
    const RowEnd end = FinishRow(strand.m[r], strand.l[r], target.sink_log2);
    const float values[2] = {__fmul_rn(strand.o[2 * r], end.inverse),
                             __fmul_rn(strand.o[2 * r + 1], end.inverse)};
    StoreColumns<Element>(params, *item.problem, target.out, column, values);
    if (target.lse != nullptr && column == 0) *target.lse = end.lse;
  }
}

// Merges strands of several items, params.combine_blocks blocks each.
template <typename Shape, typename Element, bool kGrouped>
__global__ void __launch_bounds__(kCombineThreads)
    DecodeCombineKernel(const __grid_constant__ DecodeParams params) {
  extern __shared__ __align__(1024) uint8_t smem[];
  // Strands are numbered through all records.
  const int strand = blockIdx.x / params.combine_blocks;
  DecodeItem item = {&params.problem, &params.sequence, nullptr};
  if constexpr (kGrouped) {
    int begin = 0;
    int end = params.num_sequences;
    while (end - begin > 1) {
      const int middle = (begin + end) / 2;
      (params.global_sequences[middle].first_strand <= strand ? begin : end) =
          middle;
    }
    item.sequence = params.global_sequences + begin;
    item.problem = params.global_problems + item.sequence->problem;
  }
  const DecodeSequence& sequence = *item.sequence;
  item.unit = sequence.coarse.unit;
  item.slots = sequence.coarse.slots;
  if (item.slots == 0) return;
  const int pairs = item.problem->num_kv_heads * sequence.row_tiles;
  item.strand = strand - sequence.first_strand;
  item.batch = sequence.batch_begin + item.strand / pairs;
  SetRows(item, item.strand % pairs, Shape::kTileQ);
  item.first_slot = sequence.first_slot + item.strand * item.slots;
  // A warp takes one piece of the threads of one of the consumers' warps.
  const int warps = (item.num_rows + 15) / 16;
  const int number =
      blockIdx.x % params.combine_blocks * (kCombineThreads / 32) +
      threadIdx.x / 32;
  const int i = number / warps;
  if (i >= Shape::kHeadDim / 8) return;
  const int lane = threadIdx.x % 32;
  const int warp = number % warps;
  const int row = 16 * warp + lane / 4;
  ptx::grid_wait_for_previous();
  const FoldedPiece sum =
      SlotFold<Shape>(params, item, *reinterpret_cast<CombineStorage*>(smem), i,
                      warp)
          .Run();
  StorePiece<Element>(params, item, sum, row, 8 * i + 2 * (lane % 4));
}

}  // namespace attendant::kernels::sm90
