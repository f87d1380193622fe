// The decode kernel for few packed rows (a KV head's group times the query
// rows: at most 8), bound by memory.
//
// 1. Math. As decode_split_kv.cuh, transposed: S^T = K Q^T and O^T = V^T P^T by
//    warp-wide products whose larger operand is K or V, so that 8 rows waste
//    nothing. At d 128 a key costs 512 bytes, 24 clocks of an SM's share of 4.8
//    TB/s; 8 rows cost 5 clocks of shared memory and 2 of tensor cores.
// 2. Work. A block an SM. Its producer takes items (a chunk, an octet, a
//    group or a whole strand, see DecodeSegment, or the tail of one, see
//    DecodeTails) from the launch's queue and loads their keys, in blocks of
//    64, one item after the other: 160 KB are in flight whatever the consumers
//    do. Eight warps take 16 keys of a block each, in no step with each other.
// 3. Folding. A warp folds its keys of one chunk from nothing; at the chunk's
//    end the warps' results are merged through shared memory, then chunks to
//    octets, groups and the strand (FewFold). An item that is part of a strand
//    stores what it has; the last one to arrive folds all in the same order,
//    and so do an item and its tail: who computed what changes no bit.
// 4. Barriers (phase 0 first; "empty" is waited for with parity 1 at first):
//      k/v_full    1 arrival + bytes                  consumers wait
//      empty       1 a consumer warp                  producer waits
//      item_full   1, the item's number written       Q's warp, consumers wait
//      item_empty  1 a thread that reads it           producer waits
//      q_full      1 a lane of Q's warp               consumers wait
//      q_empty     1 a consumer thread                Q's warp waits
//      merge_empty 1 a consumer thread                consumers wait
#pragma once

#include <cstdint>

#include "kernels/sm90/decode_few_consumer.cuh"
#include "kernels/sm90/decode_few_producer.cuh"

namespace attendant::kernels::sm90 {

inline constexpr uint32_t kFewStartBarrier = 2;

template <typename Shape>
__device__ __forceinline__ void InitFewBarriers(
    DecodeFewStorage<Shape>& storage) {
  for (int i = 0; i < Shape::kStages; ++i) {
    ptx::mbarrier_init(ptx::smem_address(&storage.k_full[i]), 1);
    ptx::mbarrier_init(ptx::smem_address(&storage.v_full[i]), 1);
    ptx::mbarrier_init(ptx::smem_address(&storage.empty[i]), Shape::kWarps);
  }
  for (int i = 0; i < 2; ++i) {
    ptx::mbarrier_init(ptx::smem_address(&storage.item_full[i]), 1);
    ptx::mbarrier_init(ptx::smem_address(&storage.item_empty[i]),
                       Shape::kConsumers + 32);
    ptx::mbarrier_init(ptx::smem_address(&storage.q_full[i]), 32);
    ptx::mbarrier_init(ptx::smem_address(&storage.q_empty[i]),
                       Shape::kConsumers);
  }
  ptx::mbarrier_init(ptx::smem_address(&storage.merge_empty),
                     Shape::kConsumers);
  ptx::fence_mbarrier_init();
}

template <typename Shape, typename Element, bool kGrouped, bool kTails>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    DecodeFewKernel(const __grid_constant__ DecodeParams params) {
  static_assert(sizeof(DecodeFewStorage<Shape>) <= 232448);
  extern __shared__ __align__(1024) uint8_t smem[];
  auto& storage = *reinterpret_cast<DecodeFewStorage<Shape>*>(smem);
  const int warp = threadIdx.x / 32;
  if (warp == Shape::kWarps) {
    if (threadIdx.x % 32 == 0) {
      if (!kGrouped) {
        ptx::prefetch_tensormap(params.maps + kDecodeMapK);
        ptx::prefetch_tensormap(params.maps + kDecodeMapV);
      }
      InitFewBarriers<Shape>(storage);
    }
    __syncwarp();
    // The warp that made the barriers need not wait for the others to see them.
    ptx::named_barrier_arrive(kFewStartBarrier, Shape::kThreads);
    DecodeFewProducer<Shape, kGrouped, kTails>(params, storage).Run();
    return;
  }
  ptx::named_barrier_sync(kFewStartBarrier, Shape::kThreads);
  if (warp < Shape::kWarps) {
    DecodeFewConsumer<Shape, Element, kGrouped, kTails>(params, storage).Run();
  } else {
    DecodeFewQLoader<Shape, kGrouped, kTails>(params, storage).Run();
  }
}

}  // namespace attendant::kernels::sm90
