// Merging a strand's items within a cluster of blocks, one item each: every
// block leaves its partial result in its shared memory and folds a share of the
// rows and columns from all of them. No second kernel, nothing through memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/sm90/decode_fold.cuh"
#include "kernels/sm90/decode_item.cuh"
#include "kernels/sm90/decode_load.cuh"
#include "kernels/sm90/decode_output.cuh"
#include "kernels/sm90/decode_table.h"
#include "kernels/sm90/ptx/cluster.cuh"
#include "kernels/sm90/ptx/mbarrier.cuh"

namespace attendant::kernels::sm90 {

// In the place of Q, K and V.
template <typename Shape>
struct ClusterScratch {
  static constexpr int kD = Shape::kHeadDim;
  static constexpr int kWarps = Shape::kConsumers / 32;
  static constexpr int kPieces = 2;  // side by side, that a warp takes at once
  static constexpr int kBatch = 4;   // blocks
  float4 o[kD / 8][Shape::kConsumers];  // this block's, see PartialSlot
  float2 rows[Shape::kTileQ];
  float4 taken[kBatch][kPieces][Shape::kConsumers];
  float2 taken_rows[kBatch][kWarps][16];
};

template <typename Shape, typename Element>
class ClusterMerge {
 public:
  using Scratch = ClusterScratch<Shape>;
  using Pieces = FoldedPieces<Scratch::kPieces>;
  static_assert(sizeof(Scratch) <= offsetof(DecodeStorage<Shape>, kept));

  __device__ __forceinline__ ClusterMerge(const DecodeParams& params,
                                          const DecodeItem& item,
                                          DecodeStorage<Shape>& storage)
      : params_(params),
        item_(item),
        scratch_(*reinterpret_cast<Scratch*>(&storage)),
        lane_(threadIdx.x % 32) {}

  // All consumers of the block, none of whose products is in flight. `row`: the
  // thread's first.
  __device__ __forceinline__ void Run(const PartialRows& rows,
                                      const float (&o)[Shape::kHeadDim / 2],
                                      int row) const {
    if (row - lane_ / 4 < item_.num_rows) Put(rows, o, row);
    ptx::cluster_sync();
    const int warps = (item_.num_rows + 15) / 16;
    const int number = ptx::cluster_rank() * Scratch::kWarps +
                       static_cast<int>(threadIdx.x) / 32;
    const SmallDivisor by_warps(warps);
    for (int n = number; n < warps * (Shape::kHeadDim / 16);
         n += item_.parts * Scratch::kWarps) {
      const int pair = by_warps.Divide(n);
      const int i = Scratch::kPieces * pair;
      const int warp = n - pair * warps;
      StorePieces<Scratch::kPieces, Element>(params_, item_, Fold(i, warp),
                                             16 * warp + lane_ / 4,
                                             8 * i + 2 * (lane_ % 4));
    }
    ptx::cluster_sync_relaxed();  // nobody reads what ends here
  }

 private:
  __device__ __forceinline__ void Put(const PartialRows& rows,
                                      const float (&o)[Shape::kHeadDim / 2],
                                      int row) const {
#pragma unroll
    for (int i = 0; i < Shape::kHeadDim / 8; ++i) {
      scratch_.o[i][threadIdx.x] =
          make_float4(o[4 * i], o[4 * i + 1], o[4 * i + 2], o[4 * i + 3]);
    }
    if (lane_ % 4 != 0) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      scratch_.rows[row + 8 * r] = make_float2(rows.m[r], rows.l[r]);
    }
  }

  // Pieces i and following of the threads of `warp`, of all blocks.
  __device__ __forceinline__ Pieces Fold(int i, int warp) const {
    const int mine = threadIdx.x / 32;
    const auto load = [&](int begin, int count) {
      float4 o[Scratch::kBatch][Scratch::kPieces];
      float2 rows[Scratch::kBatch];
#pragma unroll
      for (int j = 0; j < Scratch::kBatch; ++j) {
        if (j >= count) break;
#pragma unroll
        for (int k = 0; k < Scratch::kPieces; ++k) {
          o[j][k] = ptx::load_cluster_16(
              Mapped(&scratch_.o[i + k][32 * warp + lane_], begin + j));
        }
        rows[j] = ptx::load_cluster_8(
            Mapped(&scratch_.rows[16 * warp + lane_ % 16], begin + j));
      }
#pragma unroll
      for (int j = 0; j < Scratch::kBatch; ++j) {
        if (j >= count) break;
#pragma unroll
        for (int k = 0; k < Scratch::kPieces; ++k) {
          scratch_.taken[j][k][threadIdx.x] = o[j][k];
        }
        if (lane_ < 16) scratch_.taken_rows[j][mine][lane_] = rows[j];
      }
      __syncwarp();
    };
    const auto take = [&](int j) {
      Pieces pieces;
#pragma unroll
      for (int k = 0; k < Scratch::kPieces; ++k) {
        TakePiece(scratch_.taken[j][k][threadIdx.x], pieces.o[k]);
      }
      TakeRows(scratch_.taken_rows[j][mine], pieces);
      return pieces;
    };
    return FoldInOrder<Scratch::kBatch, Pieces>(item_, load, take);
  }

  __device__ __forceinline__ static uint32_t Mapped(const void* here,
                                                    int rank) {
    return ptx::map_to_rank(ptx::smem_address(here), rank);
  }

  const DecodeParams& params_;
  const DecodeItem& item_;
  Scratch& scratch_;
  const int lane_;
};

}  // namespace attendant::kernels::sm90
