// Warpgroup 0 of the prefill kernel: look-up of tiles, copies, and in a repair
// launch the scrubbing of V. Barriers: see prefill.cuh.
#pragma once

#include <cstdint>

#include "kernels/sm90/kernel_params.h"
#include "kernels/sm90/prefill_storage.cuh"
#include "kernels/sm90/ptx/mbarrier.cuh"
#include "kernels/sm90/ptx/register.cuh"
#include "kernels/sm90/ptx/tma.cuh"
#include "kernels/sm90/scrub.cuh"
#include "kernels/sm90/tile_info.cuh"

namespace attendant::kernels::sm90 {

// One warp each: looks tiles up and publishes them in the ring of tile slots.
template <typename Shape>
class Scheduler {
 public:
  using Storage = SharedStorage<Shape>;

  __device__ __forceinline__ Scheduler(const PrefillParams& params,
                                       Storage& storage)
      : params_(params), storage_(storage) {}

  // All lanes. A tile is taken from the queue no sooner than its slot is free:
  // what a busy block has taken, an idle one cannot.
  __device__ __forceinline__ void Run() {
    const int lane = threadIdx.x % 32;
    int tile = blockIdx.x;
    while (tile < params_.num_tiles) {
      const int record = FindSequence(tile, lane);
      int next = 0;
      if (lane == 0) {
        PublishTile(tile, record);
        AwaitSlot();
        next = gridDim.x + atomicAdd(&params_.counters->next_tile, 1);
      }
      __syncwarp();
      tile = __shfl_sync(0xffffffffu, next, 0);
    }
    if (lane == 0) {
      storage_.tiles[slot_.stage].is_valid = 0;
      PublishSlot();
      // The last block to come here leaves the queue as it found it.
      if (atomicInc(&params_.counters->finished_blocks, gridDim.x - 1) ==
          gridDim.x - 1) {
        params_.counters->next_tile = 0;
      }
    }
  }

 private:
  // The last record whose first tile is not after `tile`: 32 probes a round.
  __device__ __forceinline__ int FindSequence(int tile, int lane) const {
    int begin = 0;
    int end = params_.num_sequences;
    while (end - begin > 1) {
      const int step = (end - begin + 31) / 32;
      const int probe = begin + lane * step;
      const bool reached =
          probe < end && params_.global_sequences[probe].first_tile <= tile;
      const int found = __popc(__ballot_sync(0xffffffffu, reached)) - 1;
      begin += found * step;
      end = min(end, begin + step);
    }
    return begin;
  }

  // Until the last tile of the next slot is stored.
  __device__ __forceinline__ void AwaitSlot() const {
    ptx::mbarrier_wait(At(ptx::smem_address(storage_.tile_empty), slot_),
                       slot_.phase ^ 1);
  }

  __device__ __forceinline__ void PublishSlot() {
    ptx::mbarrier_arrive(At(ptx::smem_address(storage_.tile_full), slot_));
    slot_.Advance();
  }

  __device__ __forceinline__ void PublishTile(int tile, int record) {
    if (params_.global_maps == nullptr) {
      Publish(params_.maps, params_.problem, params_.sequence, tile);
      return;
    }
    const SequenceRecord& sequence = params_.global_sequences[record];
    Publish(params_.global_maps + kMapsPerProblem * sequence.problem,
            params_.global_problems[sequence.problem], sequence, tile);
  }

  __device__ __forceinline__ void Publish(const CUtensorMap* maps,
                                          const ProblemRecord& problem,
                                          const SequenceRecord& sequence,
                                          int tile) {
    const TilePlace place =
        PlaceOf(sequence, problem.num_q_heads, Shape::kTileQ, tile);
    const BlockRange blocks =
        BlocksOf(sequence, place.row0, Shape::kTileQ, Shape::kTileKv);
    FillInfo(maps, problem, sequence, place, blocks,
             storage_.tiles[slot_.stage]);
    PublishSlot();
  }

  const PrefillParams& params_;
  Storage& storage_;
  RingPlace<kTileSlots> slot_;
};

// Fills the stages of one ring after the other with rows of a map.
template <int kColumns, int kRows, int kStages>
struct LoadRing {
  static constexpr int kBoxBytes = kRows * 128;
  static constexpr int kBoxes = kColumns / 64;
  uint32_t tiles, full, empty;
  RingPlace<kStages> place;

  __device__ __forceinline__ LoadRing(const void* tiles, const void* full,
                                      const void* empty)
      : tiles(ptx::smem_address(tiles)),
        full(ptx::smem_address(full)),
        empty(ptx::smem_address(empty)) {}

  // Waits until the stage is empty.
  __device__ __forceinline__ void Load(const CUtensorMap* map, int row,
                                       int head, int batch, uint64_t policy) {
    ptx::mbarrier_wait(At(empty, place), place.phase ^ 1);
    const uint32_t barrier = At(full, place);
    ptx::mbarrier_arrive_expect_tx(barrier, kBoxes * kBoxBytes);
    const uint32_t tile = tiles + place.stage * (kBoxes * kBoxBytes);
#pragma unroll
    for (int i = 0; i < kBoxes; ++i) {
      ptx::tma_load_4d(tile + i * kBoxBytes, map, barrier, 64 * i, row, head,
                       batch, policy);
    }
    place.Advance();
  }
};

// One thread. Calls load(info) for every tile that has key blocks.
template <typename Shape, typename LoadTile>
__device__ __forceinline__ void ForEachTile(const PrefillParams& params,
                                            SharedStorage<Shape>& storage,
                                            int first_map, int num_maps,
                                            const LoadTile& load) {
  RingPlace<kTileSlots> slot;
  const CUtensorMap* fenced = params.maps;
  while (true) {
    ptx::mbarrier_wait(At(ptx::smem_address(storage.tile_full), slot),
                       slot.phase);
    const TileInfo& info = storage.tiles[slot.stage];
    if (!info.is_valid) return;
    if (info.maps != fenced) {
      fenced = info.maps;
      for (int i = first_map; i < first_map + num_maps; ++i) {
        ptx::fence_tensormap_acquire(fenced + i);
      }
    }
    if (info.block_begin != info.block_end) load(info);
    ptx::mbarrier_arrive(At(ptx::smem_address(storage.tile_empty), slot));
    slot.Advance();
  }
}

template <typename Shape>
__device__ __forceinline__ void LoadQk(const PrefillParams& params,
                                       SharedStorage<Shape>& storage) {
  LoadRing<Shape::kHeadDimQk, Shape::kTileQ, Shape::kQStages> q(
      storage.q, storage.q_full, storage.q_empty);
  LoadRing<Shape::kHeadDimQk, Shape::kTileKv, Shape::kKvStages> k(
      storage.k, storage.k_full, storage.k_empty);
  ForEachTile<Shape>(params, storage, kMapQ, 2, [&](const TileInfo& info) {
    const int begin = info.block_begin;
    int block = info.block_end - 1;
    const auto load_k = [&] {
      k.Load(info.maps + kMapK, info.kv_row + block * Shape::kTileKv,
             info.k_head, info.k_batch, ptx::kEvictLast);
    };
    load_k();
    q.Load(info.maps + kMapQ, info.q_row, info.q_head, info.q_batch,
           ptx::kEvictFirst);
    while (--block >= begin) load_k();
  });
}

template <typename Shape>
__device__ __forceinline__ void LoadV(const PrefillParams& params,
                                      SharedStorage<Shape>& storage) {
  LoadRing<Shape::kHeadDimV, Shape::kTileKv, Shape::kKvStages> v(
      storage.v,
      params.scrub_exponent == 0 ? storage.v_full : storage.v_arrived,
      storage.v_empty);
  ForEachTile<Shape>(params, storage, kMapV, 1, [&](const TileInfo& info) {
    const int begin = info.block_begin;
    for (int block = info.block_end - 1; block >= begin; --block) {
      v.Load(info.maps + kMapV, info.kv_row + block * Shape::kTileKv,
             info.v_head, info.v_batch, ptx::kEvictLast);
    }
  });
}

// One warp, in a repair launch: see scrub.cuh.
template <typename Shape>
__device__ __forceinline__ void ScrubTiles(uint32_t exponent,
                                           SharedStorage<Shape>& storage) {
  const int lane = threadIdx.x % 32;
  RingPlace<kTileSlots> slot;
  RingPlace<Shape::kKvStages> v;
  while (true) {
    ptx::mbarrier_wait(At(ptx::smem_address(storage.tile_full), slot),
                       slot.phase);
    const TileInfo& info = storage.tiles[slot.stage];
    if (!info.is_valid) return;
    const int blocks = info.block_end - info.block_begin;
    ptx::mbarrier_arrive(At(ptx::smem_address(storage.tile_empty), slot));
    slot.Advance();
    for (int i = 0; i < blocks; ++i) {
      ptx::mbarrier_wait(At(ptx::smem_address(storage.v_arrived), v), v.phase);
      ScrubTile<32>(storage.v[v.stage], SharedStorage<Shape>::kVBytes, exponent,
                    lane);
      ptx::fence_proxy_async();
      ptx::mbarrier_arrive(At(ptx::smem_address(storage.v_full), v));
      v.Advance();
    }
  }
}

// Warp w of the producer warpgroup.
template <typename Shape>
__device__ __forceinline__ void Produce(const PrefillParams& params,
                                        SharedStorage<Shape>& storage,
                                        int warp) {
  const bool leads = threadIdx.x % 32 == 0;
  if (warp == 0) {
    if (leads) LoadQk<Shape>(params, storage);
  } else if (warp == 1) {
    if (leads) LoadV<Shape>(params, storage);
  } else if (warp == 2) {
    Scheduler<Shape>(params, storage).Run();
  } else if (params.scrub_exponent != 0) {
    ScrubTiles<Shape>(params.scrub_exponent, storage);
  }
}

}  // namespace attendant::kernels::sm90
