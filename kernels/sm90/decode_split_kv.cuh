// The decode kernel for more than 8 packed rows, bound by memory.
//
// 1. Math. As prefill.cuh, but the rows of a KV head's whole group are packed
//    into one tile, so K and V are read once; scores may be modified (scale,
//    softcap, ALiBi) before the maximum is taken, so any scale is served. At d
//    128 a key costs 512 bytes, 29 clocks of an SM's share of 4.4 TB/s; 64 rows
//    cost 8 clocks of tensor cores and 4 of exponentials, 128 rows twice that.
// 2. Work. A block takes items (a chunk, 4, 8 or all of a strand) from the
//    launch's queue. A warp loads their keys one item after the other without a
//    pause, each warpgroup consumes 64 packed rows. Two blocks share a
//    multiprocessor when one warpgroup is enough.
// 3. A chunk's blocks as in prefill.cuh: QK of a block is issued before PV of
//    the one before, whose softmax they hide. The first QK of the next chunk
//    runs while the chunk is folded.
// 4. Folding. A chunk starts from nothing; chunks are folded to quads (four,
//    counted from key 0), two quads to an octet, octets to the strand, one
//    after the other (decode_merge.cuh). Within an item in memory of the
//    block's own (KeptLevels), between a strand's items by the blocks that made
//    them, if there is one for each (up to 8 in a cluster, decode_cluster.cuh;
//    up to 16 through global memory, decode_exchange.cuh), else by a second
//    kernel: the same arithmetic in the same order, so the split changes no
//    bit.
// 5. Barriers (phase 0 first; "empty" is waited for with parity 1 at first):
//      k/v_full    1 arrival + bytes                       consumers wait
//      k/v_empty   1 a consumer warp (products done)       producer waits
//      item_full   1, the item's number written            consumers wait
//      item_empty  1 a thread that reads it                producer waits
//      q_full      1 arrival + bytes, once                 consumers wait
//      merge_full  1 arrival + bytes, see the merging      consumers wait
//    The producers' warps: K and V, then the share that is fetched; the block's
//    barriers, then its flags; parameters; Q.
#pragma once

#include <cstdint>

#include "kernels/sm90/decode_consumer.cuh"
#include "kernels/sm90/decode_item.cuh"
#include "kernels/sm90/decode_load.cuh"
#include "kernels/sm90/decode_table.h"
#include "kernels/sm90/ptx/grid.cuh"
#include "kernels/sm90/ptx/mbarrier.cuh"
#include "kernels/sm90/ptx/register.cuh"

namespace attendant::kernels::sm90 {

inline constexpr uint32_t kDecodeStartBarrier = 1;
inline constexpr uint32_t kDecodeInitBarrier = 5;

template <typename Shape>
__device__ __forceinline__ void InitDecodeBarriers(
    const DecodeParams& params, DecodeStorage<Shape>& storage) {
  constexpr int kWarps = Shape::kConsumers / 32;
  const int scrubbers = params.scrub_exponent == 0 ? 0 : kScrubThreads;
  for (int i = 0; i < Shape::kStages; ++i) {
    ptx::mbarrier_init(ptx::smem_address(&storage.k_full[i]), 1);
    ptx::mbarrier_init(ptx::smem_address(&storage.v_full[i]), 1);
    ptx::mbarrier_init(ptx::smem_address(&storage.v_arrived[i]), 1);
    ptx::mbarrier_init(ptx::smem_address(&storage.k_empty[i]), kWarps);
    ptx::mbarrier_init(ptx::smem_address(&storage.v_empty[i]), kWarps);
  }
  for (int i = 0; i < 2; ++i) {
    ptx::mbarrier_init(ptx::smem_address(&storage.item_full[i]), 1);
    ptx::mbarrier_init(ptx::smem_address(&storage.item_empty[i]),
                       Shape::kConsumers + scrubbers);
  }
  ptx::mbarrier_init(ptx::smem_address(&storage.q_full), 1);
  ptx::mbarrier_init(ptx::smem_address(&storage.merge_full), 1);
  storage.takes_all = storage.leaves = 0;
  ptx::fence_mbarrier_init();
}

// Parameters lie in constant memory, each line of it a miss when a launch
// starts: brought in side by side, while others ask for the first keys.
template <typename Shape>
__device__ __forceinline__ void TouchParams(const DecodeParams& params,
                                            DecodeStorage<Shape>& storage) {
  static_assert(sizeof(params) <= 32 * 64);
  const int line = min(static_cast<int>(threadIdx.x % 32),
                       static_cast<int>(sizeof(params)) / 64 - 1);
  // What is read must seem to be used.
  const uint32_t all = __reduce_or_sync(
      0xffffffffu, reinterpret_cast<const uint32_t*>(&params)[16 * line]);
  if (threadIdx.x % 32 == 0) storage.touched = all;
}

template <typename Shape, typename Element, bool kGrouped, bool kModifies>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocksPerSm)
    DecodeKernel(const __grid_constant__ DecodeParams params) {
  using Storage = DecodeStorage<Shape>;
  // 228 KiB a multiprocessor, of which 1 KiB a block is the system's.
  static_assert(sizeof(Storage) <= 233472 / Shape::kBlocksPerSm - 1024);
  extern __shared__ __align__(1024) uint8_t smem[];
  Storage& storage = *reinterpret_cast<Storage*>(smem);
  ptx::grid_launch_dependents();  // the combine kernel
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
  constexpr int kConsumerWarps = Shape::kConsumers / 32;
  constexpr uint32_t kInitThreads = 96;  // the barriers' and who loads first
  // Before what takes longer.
  if (warp == kConsumerWarps + 1) {
    if (threadIdx.x % 32 == 0) {
      InitDecodeBarriers<Shape>(params, storage);
      if (!kGrouped) {
        ptx::prefetch_tensormap(params.maps + kDecodeMapQ);
        ptx::prefetch_tensormap(params.maps + kDecodeMapK);
        ptx::prefetch_tensormap(params.maps + kDecodeMapV);
      }
    }
    __syncwarp();
    ptx::named_barrier_arrive(kDecodeInitBarrier, kInitThreads);
  }
  // By all warps alike: fetched once.
  const DecodeItem first =
      FindItem<kGrouped, true>(params, blockIdx.x, Shape::kTileQ);
  if (warp < kConsumerWarps) {
    DecodeConsumer<Shape, Element, kGrouped, kModifies> consumer(
        params, storage, warp / 4);
    consumer.Begin(first);
    ptx::named_barrier_sync(kDecodeStartBarrier, Shape::kThreads);
    ptx::setmaxnreg_inc<Shape::kConsumerRegisters>();
    consumer.Run();
    return;
  }
  ptx::setmaxnreg_dec<Shape::kProducerRegisters>();
  if (warp == kConsumerWarps) {
    // Waits for the barriers alone, not for the consumers.
    ptx::named_barrier_sync(kDecodeInitBarrier, kInitThreads);
    ptx::named_barrier_arrive(kDecodeStartBarrier, Shape::kThreads);
    DecodeProducer<Shape, kGrouped>(params, storage).Run(first);
    if constexpr (MayMerge<Shape, kModifies>()) {
      if (MergesByArrival(params, first)) {
        StrandExchange<Shape, Element>(params, first, storage)
            .FetchShare(BoardOf(params, first));
      }
    }
    return;
  }
  if (warp == kConsumerWarps + 3) {
    ptx::named_barrier_sync(kDecodeInitBarrier, kInitThreads);
    // Beside K and V: what is asked for after them comes after them.
    if (first.problem->q_has_map) LoadQByMap<Shape, kGrouped>(first, storage);
  }
  if (warp == kConsumerWarps + 2) TouchParams<Shape>(params, storage);
  ptx::named_barrier_sync(kDecodeStartBarrier, Shape::kThreads);
  if (params.scrub_exponent != 0) {
    ScrubItems<Shape>(params, threadIdx.x - Shape::kConsumers - 32, storage);
  }
  if constexpr (MayMerge<Shape, kModifies>()) {
    if (warp == kConsumerWarps + 1 && MergesByArrival(params, first)) {
      StrandExchange<Shape, Element>(params, first, storage)
          .RaiseFlags(BoardOf(params, first));
    }
  }
}

}  // namespace attendant::kernels::sm90
