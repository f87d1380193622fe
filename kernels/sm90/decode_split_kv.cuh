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
//    block's own (KeptLevels), between the up to 8 items of a strand by a
//    cluster of their blocks (decode_cluster.cuh), else by a second kernel: the
//    same arithmetic in the same order, so the split changes no bit. The last
//    block to arrive would merge alone for longer than a launch takes (b1
//    kv2048: 18.7 us instead of 13.1).
// 5. Barriers (phase 0 first; "empty" is waited for with parity 1 at first):
//      k/v_full    1 arrival + bytes                       consumers wait
//      k/v_empty   1 a consumer warp (products done)       producer waits
//      item_full   1, the item's number written            consumers wait
//      item_empty  1 a thread that reads it                producer waits
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
  ptx::fence_mbarrier_init();
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
  if (warp < Shape::kConsumers / 32) {
    ptx::named_barrier_sync(kDecodeStartBarrier, Shape::kThreads);
    ptx::setmaxnreg_inc<Shape::kConsumerRegisters>();
    DecodeConsumer<Shape, Element, kGrouped, kModifies>(params, storage,
                                                        warp / 4)
        .Run();
    return;
  }
  ptx::setmaxnreg_dec<Shape::kProducerRegisters>();
  if (warp == Shape::kConsumers / 32) {
    if (threadIdx.x % 32 == 0) {
      if (!kGrouped) {
        ptx::prefetch_tensormap(params.maps + kDecodeMapK);
        ptx::prefetch_tensormap(params.maps + kDecodeMapV);
      }
      InitDecodeBarriers<Shape>(params, storage);
    }
    __syncwarp();
    // The warp that made the barriers need not wait for the others to see them.
    ptx::named_barrier_arrive(kDecodeStartBarrier, Shape::kThreads);
    DecodeProducer<Shape, kGrouped>(params, storage).Run();
    return;
  }
  ptx::named_barrier_sync(kDecodeStartBarrier, Shape::kThreads);
  if (params.scrub_exponent != 0) {
    ScrubItems<Shape, kGrouped>(params, threadIdx.x - Shape::kConsumers - 32,
                                storage);
  }
}

}  // namespace attendant::kernels::sm90
