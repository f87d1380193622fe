// The second kernel of a decode launch: merges strands of several items.
#pragma once

#include <cstdint>

#include "kernels/sm90/decode_fold.cuh"
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

// Folds slots, a thread's piece of each.
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

  __device__ __forceinline__ FoldedPieces<1> Run() const {
    return FoldInOrder<kCombineBatch, FoldedPieces<1>>(
        item_, [this](int begin, int count) { Load(begin, count); },
        [this](int j) { return Take(j); });
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

  // Slot j of those loaded.
  __device__ __forceinline__ FoldedPieces<1> Take(int j) const {
    FoldedPieces<1> piece;
    TakePiece(storage_.o[j][threadIdx.x], piece.o[0]);
    TakeRows(storage_.rows[j][threadIdx.x / 32], piece);
    return piece;
  }

  const DecodeItem& item_;
  CombineStorage& storage_;
  const int lane_;
  const PartialSlot<Shape> base_;
  const float4* const piece_;
  const float2* const rows_;
};

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
  item.first_unit = sequence.coarse.first_unit;
  if (item.slots == 0) return;
  const int pairs = item.problem->num_kv_heads * sequence.row_tiles;
  item.strand = strand - sequence.first_strand;
  const int batch = sequence.by_pairs.Divide(item.strand);
  item.batch = sequence.batch_begin + batch;
  SetRows(item, item.strand - batch * pairs, Shape::kTileQ);
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
  const FoldedPieces<1> sum =
      SlotFold<Shape>(params, item, *reinterpret_cast<CombineStorage*>(smem), i,
                      warp)
          .Run();
  StorePieces<1, Element>(params, item, sum, row, 8 * i + 2 * (lane % 4));
}

}  // namespace attendant::kernels::sm90
