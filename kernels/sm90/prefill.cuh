// The prefill kernel: O = softmax(scale Q K^T) V and LSE for one tile class.
//
// 1. Math. S = Q K^T (reg s), x = c S, mask by bounds, online softmax (see
//    softmax.cuh: reference, sum), O += P V (reg o), O / sum, LSE. A row that
//    sees nothing: O = 0, LSE = -inf. 4 M N d FLOP and M N exponentials a
//    block: at d 128 the tensor cores bind, at d 64 they tie with the
//    exponentials.
// 2. Work. Persistent blocks take tiles (kTileQ rows of one head) from a queue,
//    longest first. Warpgroup 0 produces, one warp a task: look-up of tiles,
//    copies of Q and K, copies of V. Every other warpgroup consumes: 64 rows
//    each.
// 3. Order of a consumer: S of block j is multiplied while P of block j + 1
//    (keys run right to left) still has to meet V, so that the exponentials of
//    one hide behind the products of the other:
//      QK(j) | PV(j + 1) | wait QK | mask, max, exp | wait PV | round P
//    Behind the last PV it reads the next tile, and behind that tile's first QK
//    it stores O.
// 4. Barriers (phase 0 first; waiters on "empty" start with parity 1):
//      tile_full   1 arrival (scheduler: TileInfo written)  all wait
//      tile_empty  2 loaders, all consumer threads (stored) scheduler waits
//      q/k/v_full  1 arrival + bytes                        consumers wait
//      q/k/v_empty 1 a consumer warp (products done)        loaders wait
//    In a repair launch V's copies complete on v_arrived; warp 3 of the
//    producer warpgroup scrubs the tile and all its lanes arrive on v_full; it
//    reads tiles as consumers do.
#pragma once

#include <cstdint>

#include "kernels/sm90/kernel_params.h"
#include "kernels/sm90/prefill_consumer.cuh"
#include "kernels/sm90/prefill_producer.cuh"
#include "kernels/sm90/prefill_storage.cuh"
#include "kernels/sm90/ptx/mbarrier.cuh"
#include "kernels/sm90/ptx/register.cuh"

namespace attendant::kernels::sm90 {

template <typename Shape>
__device__ __forceinline__ void InitBarriers(SharedStorage<Shape>& storage,
                                             bool scrubs) {
  constexpr int kConsumerWarps = 4 * Shape::kWarpgroups;
  const auto init = [](uint64_t* barriers, int count, int arrivals) {
    for (int i = 0; i < count; ++i) {
      ptx::mbarrier_init(ptx::smem_address(barriers + i), arrivals);
    }
  };
  init(storage.tile_full, kTileSlots, 1);
  init(storage.tile_empty, kTileSlots,
       kLoaders + 32 * (kConsumerWarps + (scrubs ? 1 : 0)));
  init(storage.q_full, Shape::kQStages, 1);
  init(storage.q_empty, Shape::kQStages, kConsumerWarps);
  init(storage.k_full, Shape::kKvStages, 1);
  init(storage.k_empty, Shape::kKvStages, kConsumerWarps);
  init(storage.v_full, Shape::kKvStages, scrubs ? 32 : 1);
  init(storage.v_empty, Shape::kKvStages, kConsumerWarps);
  init(storage.v_arrived, Shape::kKvStages, 1);
  ptx::fence_mbarrier_init();
}

template <typename Shape, typename Element, bool kScoreMod>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    PrefillKernel(const __grid_constant__ PrefillParams params) {
  using Storage = SharedStorage<Shape>;
  static_assert(sizeof(Storage) <= kSharedMemoryPerBlock);
  extern __shared__ __align__(1024) uint8_t smem[];
  Storage& storage = *reinterpret_cast<Storage*>(smem);
  if (threadIdx.x == 0) {
    InitBarriers<Shape>(storage, params.scrub_exponent != 0);
  } else if (threadIdx.x == 32 && params.global_maps == nullptr) {
    for (const CUtensorMap& map : params.maps) ptx::prefetch_tensormap(&map);
  }
  __syncthreads();
  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  if (warpgroup == 0) {
    ptx::setmaxnreg_dec<Shape::kProducerRegisters>();
    Produce<Shape>(params, storage,
                   __shfl_sync(0xffffffffu, threadIdx.x / 32, 0));
  } else {
    ptx::setmaxnreg_inc<Shape::kConsumerRegisters>();
    Consumer<Shape, Element, kScoreMod>(params, storage, warpgroup - 1).Run();
  }
}

}  // namespace attendant::kernels::sm90
