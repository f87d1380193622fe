// Merging a strand's items in a cluster of the blocks that made them, one item
// each: every block leaves its partial result in shared memory, pushes the rows
// of each of the others into that one's, and folds its own share of them. No
// second kernel. Larger strands: decode_exchange.cuh.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/sm90/decode_fold.cuh"
#include "kernels/sm90/decode_item.cuh"
#include "kernels/sm90/decode_load.cuh"
#include "kernels/sm90/decode_output.cuh"
#include "kernels/sm90/decode_table.h"
#include "kernels/sm90/ptx/bulk.cuh"
#include "kernels/sm90/ptx/cluster.cuh"
#include "kernels/sm90/ptx/mbarrier.cuh"

namespace attendant::kernels::sm90 {

template <typename Shape, typename Element>
class ClusterMerge {
 public:
  static constexpr int kD = Shape::kHeadDim;
  static constexpr int kWarps = Shape::kConsumers / 32;
  using Fold = RowFold<kD>;

  // Of a block whose result lies in storage.kept and storage.rows.
  __device__ __forceinline__ ClusterMerge(const DecodeParams& params,
                                          const DecodeItem& item,
                                          DecodeStorage<Shape>& storage)
      : params_(params),
        item_(item),
        storage_(storage),
        warp_(threadIdx.x / 32),
        is_first_lane_(threadIdx.x % 32 == 0),
        share_rows_(
            (SmallDivisor(item.parts).Divide(item.num_rows + item.parts - 1) +
             1) /
            2 * 2),
        share_(reinterpret_cast<float*>(storage.q),
               reinterpret_cast<float2*>(storage.q +
                                         item.slots * share_rows_ * kD * 4),
               share_rows_) {}

  // All consumers of all the cluster's blocks; none of this block's products is
  // in flight.
  __device__ __forceinline__ void Run() {
    // What arrives takes the place of Q, K and V.
    ptx::fence_proxy_async();
    ptx::cluster_arrive_relaxed();
    ptx::named_barrier_sync(kDecodeConsumersBarrier, Shape::kConsumers);
    const int rank = ptx::cluster_rank();
    if (threadIdx.x == 0) Expect(rank, item_.slots - 1);
    ptx::cluster_wait();
    if (is_first_lane_) {
#pragma unroll 1
      for (int to = warp_; to < item_.parts; to += kWarps) {
        if (to != rank) Push(rank, to);
      }
    }
    FoldShare(rank);
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();  // until nobody reads what lies here
  }

 private:
  __device__ __forceinline__ int RowsOf(int share) const {
    return min(share_rows_, max(0, item_.num_rows - share * share_rows_));
  }
  // That are copied: (m, l) go 16 bytes at a time.
  __device__ __forceinline__ int CopiedRowsOf(int share) const {
    return (RowsOf(share) + 1) / 2 * 2;
  }
  __device__ __forceinline__ uint32_t barrier() const {
    return ptx::smem_address(&storage_.merge_full);
  }
  __device__ __forceinline__ float* result() const {
    return reinterpret_cast<float*>(storage_.kept);
  }

  __device__ __forceinline__ void Expect(int share, int slots) const {
    ptx::mbarrier_arrive_expect_tx(barrier(),
                                   slots * CopiedRowsOf(share) * (kD + 2) * 4);
  }

  // This block's rows of block `to`'s share.
  __device__ __forceinline__ void Push(int rank, int to) const {
    const int count = CopiedRowsOf(to);
    if (count == 0) return;
    const uint32_t to_barrier = ptx::map_to_rank(barrier(), to);
    ptx::bulk_push(ptx::map_to_rank(ptx::smem_address(share_.o_of(rank)), to),
                   ptx::smem_address(result() + to * share_rows_ * kD),
                   count * kD * 4, to_barrier);
    ptx::bulk_push(ptx::map_to_rank(ptx::smem_address(share_.ml_of(rank)), to),
                   ptx::smem_address(storage_.rows + to * share_rows_),
                   count * 8, to_barrier);
  }

  // Runs once on the block's own slot, to no effect, so that the instructions
  // are there when what others push is.
  __device__ __forceinline__ void FoldShare(int number) const {
    bool rehearses = true;
    constexpr int kRows = Shape::kConsumers / Fold::kLanes;  // at once
    const int rows = RowsOf(number);
    const bool in_pairs = share_rows_ <= kRows / 2 && Fold::CanPair(item_);
    const int thread = threadIdx.x / Fold::kLanes;
    const bool is_second = in_pairs && thread % 2 != 0;
    const int last = in_pairs ? (rows + 1) / 2 * 2 : rows;  // in whole warps
#pragma unroll 1
    for (int i = in_pairs ? thread / 2 : thread; i < last;) {
      const int index = min(i, rows - 1);
      const int row = number * share_rows_ + index;
      const RowTarget target = TargetOf(item_, row);
      Fold fold(item_, rehearses ? 1 : item_.slots, threadIdx.x % Fold::kLanes);
      if (!rehearses) ptx::mbarrier_wait(barrier(), 0);
      if (in_pairs) {
        const StagedShare<kD> share =
            rehearses ? StagedShare<kD>(result(), storage_.rows, 0) : share_;
        fold.AppendInPairs(share, row, rehearses ? row : index,
                           rehearses ? -1 : item_.part, result(),
                           storage_.rows);
      } else {
        fold.Append(share_, rehearses ? 1 : item_.slots, row, index,
                    rehearses ? 0 : item_.part, result(), storage_.rows);
      }
      fold.template Store<Element>(params_, item_, target,
                                   !rehearses && !is_second);
      // In pairs all rows were there at once.
      i += rehearses ? 0 : kRows;
      rehearses = false;
    }
  }

  const DecodeParams& params_;
  const DecodeItem& item_;
  DecodeStorage<Shape>& storage_;
  const int warp_;
  const bool is_first_lane_;
  const int share_rows_;  // even
  const StagedShare<kD> share_;
};

}  // namespace attendant::kernels::sm90
