// Merging a strand's items by the blocks that made them, one item each: every
// block leaves its partial result in shared memory and folds a share of the
// rows from all of them. No second kernel.
//
//   cluster   blocks push their rows into the shared memory of who folds them
//   arrivals  through global memory, see ArrivalBoard: a warp stores the
//             block's result and raises its flag to each of the others, another
//             fetches the block's share of theirs as their flags come up.
//             Whoever waits too long leaves, and says so: the last to finish
//             then folds all shares. So no block depends on others that have
//             not started. (A share folded twice is stored twice, the same
//             bits.)
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

// Of the consumers with the two warps that store and fetch, of these two, and
// of the consumers with the one that fetches.
inline constexpr uint32_t kDecodeResultBarrier = 6;
inline constexpr uint32_t kDecodeStoredBarrier = 7;
inline constexpr uint32_t kDecodeVerdictBarrier = 8;

// Clocks that a block waits for the others of its strand.
inline constexpr uint32_t kMergePatience = 40'000;

// What a strand's blocks tell each other, in global memory, all zero before and
// after the launch: a line of flags for each block, which the others raise
// there and it alone reads, since words that many change and many read make
// each other wait; and a word, a bit each block that has finished, then one
// each that has left.
struct ArrivalBoard {
  uint32_t word;
  uint32_t unused[15];
  uint32_t flags[kMostMerged][kMostMerged];  // [reader][block]
};
static_assert(sizeof(ArrivalBoard) == kArrivalWords * sizeof(uint32_t));

__device__ __forceinline__ ArrivalBoard& BoardOf(const DecodeParams& params,
                                                 const DecodeItem& item) {
  return reinterpret_cast<ArrivalBoard*>(
      params.arrivals)[item.sequence->first_strand + item.strand];
}

// Whether the blocks of `item`'s strand do.
__device__ __forceinline__ bool MergesByArrival(const DecodeParams& params,
                                                const DecodeItem& item) {
  return item.parts > 1 && params.merge == DecodeMerge::kByArrival;
}

template <typename Shape, typename Element>
class StrandMerge {
 public:
  static constexpr int kD = Shape::kHeadDim;
  static constexpr int kWarps = Shape::kConsumers / 32;
  static constexpr int kResultThreads = Shape::kConsumers + 64;
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

  // All consumers of the block, while its warps that store and fetch run
  // StoreResult and FetchShare.
  __device__ __forceinline__ void ByArrival() {
    ptx::fence_proxy_async();
    ptx::named_barrier_sync(kDecodeResultBarrier, kResultThreads);
    FoldShare(item_.part, 0, true);
    ptx::named_barrier_sync(kDecodeVerdictBarrier, Shape::kConsumers + 32);
    if (storage_.takes_all != 0) FoldAllShares();
  }

  // A warp: the block's result, which then has arrived.
  __device__ __forceinline__ void StoreResult(ArrivalBoard& board) const {
    const int lane = threadIdx.x % 32;
    ptx::named_barrier_sync(kDecodeResultBarrier, kResultThreads);
    if (lane == 0) {
      PartialSlot<Shape>(params_, item_.slot)
          .Store(result(), storage_.rows, 0, item_.num_rows);
      ptx::bulk_wait();
    }
    __syncwarp();
    if (lane < item_.parts && lane != item_.part) {
      ptx::store_release(&board.flags[lane][item_.part], 1);
    }
    ptx::named_barrier_arrive(kDecodeStoredBarrier, 64);
  }

  // Another: the block's share, each slot once it has arrived.
  __device__ __forceinline__ void FetchShare(ArrivalBoard& board) const {
    const int lane = threadIdx.x % 32;
    const uint32_t all = (1u << item_.parts) - 1;
    const uint32_t mine = 1u << item_.part;
    const uint32_t others = all & ~mine;
    uint32_t* const flag = &board.flags[item_.part][min(lane, kMostMerged - 1)];
    ptx::named_barrier_sync(kDecodeResultBarrier, kResultThreads);
    const uint32_t begin = clock();
    uint32_t arrived = 0;
    bool leaves = false;
    while (arrived != others && !leaves) {
      const bool is_up = ptx::load_acquire(flag) != 0;
      const uint32_t now =
          __ballot_sync(0xffffffffu, is_up) & others & ~arrived;
      arrived |= now;
      if (now >> lane & 1) {
        ptx::fence_proxy_async_global();
        Fetch(item_.part, lane);
      }
      const bool is_late =
          static_cast<uint32_t>(clock()) - begin > kMergePatience;
      leaves = __shfl_sync(0xffffffffu, is_late, 0) && arrived != others;
    }
    if (lane == 0) {
      storage_.leaves = leaves;
      Expect(item_.part, __popc(arrived));
    }
    __syncwarp();
    if (!leaves && lane < kMostMerged) *flag = 0;  // all are up
    // The block's own result has arrived, which depends on nobody else.
    ptx::named_barrier_sync(kDecodeStoredBarrier, 64);
    uint32_t word = mine | (leaves ? mine << kMostMerged : 0);
    if (lane == 0) word |= ptx::atomic_or_acq_rel(&board.word, word);
    word = __shfl_sync(0xffffffffu, word, 0);
    const bool is_last = (word & all) == all;
    const bool some_left = word >> kMostMerged != 0;
    if (lane == 0) {
      storage_.takes_all = is_last && some_left;
      if (is_last) board.word = 0;
    }
    ptx::named_barrier_sync(kDecodeVerdictBarrier, Shape::kConsumers + 32);
    // Who left has not put its flags back.
    if (!is_last || !some_left) return;
#pragma unroll 1
    for (int i = lane; i < kMostMerged * kMostMerged; i += 32) {
      board.flags[0][i] = 0;
    }
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
      if (!rehearses) {
        ptx::mbarrier_wait(barrier(), phase);
        if (storage_.leaves != 0) return;
      }
      if (in_pairs) {
        const StagedShare<kD> share =
            rehearses ? StagedShare<kD>(result(), storage_.rows, 0) : share_;
        fold.AppendInPairs(share, item_.slots, row, rehearses ? row : index,
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
