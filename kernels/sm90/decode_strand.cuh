// Merging a strand's items by the blocks that made them, one item each: every
// block leaves its partial result in shared memory and folds a share of the
// rows from all of them. No second kernel.
//
//   cluster    blocks push their rows into the shared memory of who folds them
//   arrivals   through global memory: a block that has stored its result
//   fetches
//              its share of the others as they arrive. Whoever waits too long
//              leaves, and says so: the last to arrive then folds all shares.
//              So no block depends on others that have not started. (A share
//              folded twice is stored twice, the same bits.)
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/sm90/decode_fold.cuh"
#include "kernels/sm90/decode_item.cuh"
#include "kernels/sm90/decode_load.cuh"
#include "kernels/sm90/decode_output.cuh"
#include "kernels/sm90/decode_table.h"
#include "kernels/sm90/ptx/atomic.cuh"
#include "kernels/sm90/ptx/bulk.cuh"
#include "kernels/sm90/ptx/cluster.cuh"
#include "kernels/sm90/ptx/mbarrier.cuh"

namespace attendant::kernels::sm90 {

inline constexpr uint32_t kDecodeWarpgroupBarrier = 2;  // and the next
inline constexpr uint32_t kDecodeConsumersBarrier = 4;

// Clocks that a block waits for the others of its strand.
inline constexpr uint32_t kMergePatience = 40'000;

template <typename Shape, typename Element>
class StrandMerge {
 public:
  static constexpr int kD = Shape::kHeadDim;
  static constexpr int kWarps = Shape::kConsumers / 32;
  using Fold = RowFold<kD>;

  // Of a block whose result lies in storage.kept and storage.rows.
  __device__ __forceinline__ StrandMerge(const DecodeParams& params,
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
  __device__ __forceinline__ void InCluster() {
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
    FoldShare(rank, 0, true);
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();  // until nobody reads what lies here
  }

  // All consumers of the block. Two words of the strand's, zero before and
  // after the launch.
  __device__ __forceinline__ void ByArrival(uint32_t* words) {
    ptx::fence_proxy_async();
    ptx::named_barrier_sync(kDecodeConsumersBarrier, Shape::kConsumers);
    uint32_t left = 0;
    // The last warp, which has the fewest rows to fold, if any.
    const bool is_first = threadIdx.x == Shape::kConsumers - 32;
    if (is_first) {
      StoreResult(words);
      FetchArrived(words);
      left = atomicInc(words + 1, item_.parts - 1);
    }
    FoldShare(item_.part, 0, warp_ != kWarps - 1);
    ptx::mbarrier_wait(barrier(), 0);
    if (storage_.takes_all != 0) FoldAllShares();
    // The last puts the word back.
    if (is_first && left + 1 == item_.parts) words[0] = 0;
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

  // The result, which then has arrived. The word: a bit each part that has,
  // then one each part that has left before all had.
  __device__ __forceinline__ void StoreResult(uint32_t* word) const {
    PartialSlot<Shape>(params_, item_.slot)
        .Store(result(), storage_.rows, 0, item_.num_rows);
    ptx::bulk_wait();
    const uint32_t all = (1u << item_.parts) - 1;
    const uint32_t mine = 1u << item_.part;
    const uint32_t before = ptx::atomic_or_acq_rel(word, mine);
    if (((before | mine) & all) == all && before >> kMostMerged != 0) {
      storage_.takes_all = 1;
    }
  }

  // The block's share, each slot once it has arrived.
  __device__ __forceinline__ void FetchArrived(uint32_t* word) const {
    const uint32_t all = (1u << item_.parts) - 1;
    const uint32_t begin = clock();
    uint32_t fetched = 1u << item_.part;  // lies here
    while (fetched != all) {
      uint32_t now = ptx::load_acquire(word) & all & ~fetched;
      if (now == 0 && static_cast<uint32_t>(clock()) - begin > kMergePatience) {
        now = ptx::atomic_or_acq_rel(word, 1u << (kMostMerged + item_.part)) &
              all & ~fetched;
        if ((fetched | now) != all) {
          storage_.leaves = 1;
          break;
        }
      }
      if (now != 0) ptx::fence_proxy_async_global();
      fetched |= now;
#pragma unroll 1
      for (; now != 0; now &= now - 1) Fetch(item_.part, __ffs(now) - 1);
    }
    Expect(item_.part, __popc(fetched) - 1);
  }

  // All slots have arrived.
  __device__ __forceinline__ void FoldAllShares() const {
    uint32_t phase = 1;
#pragma unroll 1
    for (int share = 0; share < item_.parts; ++share, phase ^= 1) {
      ptx::fence_proxy_async();
      ptx::named_barrier_sync(kDecodeConsumersBarrier, Shape::kConsumers);
      if (threadIdx.x == 0) {
        storage_.leaves = 0;
        ptx::fence_proxy_async_global();
#pragma unroll 1
        for (int slot = 0; slot < item_.slots; ++slot) {
          if (slot != item_.part) Fetch(share, slot);
        }
        Expect(share, item_.slots - 1);
      }
      FoldShare(share, phase, false);
    }
  }

  __device__ __forceinline__ void Fetch(int share, int number) const {
    const int count = CopiedRowsOf(share);
    if (count == 0) return;
    const PartialSlot<Shape> slot(params_, item_.first_slot + number);
    const int row = share * share_rows_;
    ptx::bulk_load(ptx::smem_address(share_.o_of(number)), slot.o(row),
                   count * kD * 4, barrier());
    ptx::bulk_load(ptx::smem_address(share_.ml_of(number)), slot.rows(row),
                   count * 8, barrier());
  }

  // Unless the block leaves. `rehearses`: runs once on its own slot, to no
  // effect, so that the instructions are there when what is fetched is.
  __device__ __forceinline__ void FoldShare(int number, uint32_t phase,
                                            bool rehearses) const {
    const int lane = threadIdx.x % Fold::kLanes;
#pragma unroll 1
    for (int i = threadIdx.x / Fold::kLanes; i < RowsOf(number);) {
      const int row = number * share_rows_ + i;
      const RowTarget target = TargetOf(item_, row);
      const int slots = rehearses ? 1 : item_.slots;
      Fold fold(item_, slots, lane);
      if (!rehearses) {
        ptx::mbarrier_wait(barrier(), phase);
        if (storage_.leaves != 0) return;
      }
      fold.Append(share_, slots, row, i, rehearses ? 0 : item_.part, result(),
                  storage_.rows);
      fold.template Store<Element>(params_, item_, target, !rehearses);
      i += rehearses ? 0 : Shape::kConsumers / Fold::kLanes;
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
