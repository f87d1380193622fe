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
// 4. Barriers (phase 0 first; waiters on "empty" start with parity 1):
//      tile_full   1 arrival (scheduler: TileInfo written)  all wait
//      tile_empty  2 loaders, 1 a consumer warp (stored)    scheduler waits
//      q/k/v_full  1 arrival + bytes                        consumers wait
//      q/k/v_empty 1 a consumer warp (products done)        loaders wait
//    In a repair launch V's copies complete on v_arrived; warp 3 of the
//    producer warpgroup scrubs the tile and arrives on v_full; it reads tiles
//    as consumers do.
#pragma once

#include <cstdint>

#include "kernels/sm90/epilogue.cuh"
#include "kernels/sm90/kernel_params.h"
#include "kernels/sm90/mask.cuh"
#include "kernels/sm90/ptx/mbarrier.cuh"
#include "kernels/sm90/ptx/register.cuh"
#include "kernels/sm90/ptx/tma.cuh"
#include "kernels/sm90/ptx/wgmma.cuh"
#include "kernels/sm90/scrub.cuh"
#include "kernels/sm90/softmax.cuh"
#include "kernels/sm90/tile_info.cuh"

namespace attendant::kernels::sm90 {

inline constexpr int kTileSlots = 2;
inline constexpr int kLoaders = 2;
inline constexpr int kSharedMemoryPerBlock = 232448;  // 227 KiB

// Tiles in 128-byte swizzle: 64 columns of a row are 128 bytes, the next 64
// columns follow after all rows.
template <typename Shape>
struct alignas(1024) SharedStorage {
  static constexpr int kQBytes = Shape::kTileQ * Shape::kHeadDimQk * 2;
  static constexpr int kKBytes = Shape::kTileKv * Shape::kHeadDimQk * 2;
  static constexpr int kVBytes = Shape::kTileKv * Shape::kHeadDimV * 2;
  alignas(1024) uint8_t q[Shape::kQStages][kQBytes];
  alignas(1024) uint8_t k[Shape::kKvStages][kKBytes];
  alignas(1024) uint8_t v[Shape::kKvStages][kVBytes];
  TileInfo tiles[kTileSlots];
  uint64_t tile_full[kTileSlots], tile_empty[kTileSlots];
  uint64_t q_full[Shape::kQStages], q_empty[Shape::kQStages];
  uint64_t k_full[Shape::kKvStages], k_empty[Shape::kKvStages];
  uint64_t v_full[Shape::kKvStages], v_empty[Shape::kKvStages];
  uint64_t v_arrived[Shape::kKvStages];  // repair only
};

// A place in a ring of kStages: stage and phase parity.
template <int kStages>
struct RingPlace {
  uint32_t stage = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void Advance() {
    if constexpr (kStages == 1) {
      phase ^= 1;
    } else if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

template <int kStages>
__device__ __forceinline__ uint32_t At(uint32_t first_barrier,
                                       const RingPlace<kStages>& place) {
  return first_barrier + 8 * place.stage;
}

// ---- Producer ---------------------------------------------------------------

// One warp each: looks tiles up and publishes them in the ring of tile slots.
template <typename Shape>
class Scheduler {
 public:
  using Storage = SharedStorage<Shape>;

  __device__ __forceinline__ Scheduler(const PrefillParams& params,
                                       Storage& storage)
      : params_(params), storage_(storage) {}

  // All lanes.
  __device__ __forceinline__ void Run() {
    const int lane = threadIdx.x % 32;
    int tile = blockIdx.x;
    while (tile < params_.num_tiles) {
      const int record = FindSequence(tile, lane);
      int next = 0;
      if (lane == 0) {
        next = gridDim.x + atomicAdd(&params_.counters->next_tile, 1);
        PublishTile(tile, record);
      }
      __syncwarp();
      tile = __shfl_sync(0xffffffffu, next, 0);
    }
    if (lane == 0) {
      AcquireSlot().is_valid = 0;
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

  // The next slot of the ring, once its last tile is stored.
  __device__ __forceinline__ TileInfo& AcquireSlot() {
    ptx::mbarrier_wait(At(ptx::smem_address(storage_.tile_empty), slot_),
                       slot_.phase ^ 1);
    return storage_.tiles[slot_.stage];
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
    FillInfo(maps, problem, sequence, place, blocks, AcquireSlot());
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
    __syncwarp();
    if (lane == 0) {
      ptx::mbarrier_arrive(At(ptx::smem_address(storage.tile_empty), slot));
    }
    slot.Advance();
    for (int i = 0; i < blocks; ++i) {
      ptx::mbarrier_wait(At(ptx::smem_address(storage.v_arrived), v), v.phase);
      ScrubTile<32>(storage.v[v.stage], SharedStorage<Shape>::kVBytes, exponent,
                    lane);
      ptx::fence_proxy_async();
      __syncwarp();
      if (lane == 0) {
        ptx::mbarrier_arrive(At(ptx::smem_address(storage.v_full), v));
      }
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

// ---- Consumer ---------------------------------------------------------------

template <typename Shape, typename Element, bool kScoreMod>
class Consumer {
 public:
  using Storage = SharedStorage<Shape>;
  static constexpr int kN = Shape::kTileKv;
  static constexpr int kD = Shape::kHeadDimQk;
  static constexpr int kDv = Shape::kHeadDimV;

  // `warpgroup`: 0..kWarpgroups-1, uniform.
  __device__ __forceinline__ Consumer(const PrefillParams& params,
                                      Storage& storage, int warpgroup)
      : params_(params),
        storage_(storage),
        warpgroup_(warpgroup),
        lane_(threadIdx.x % 32),
        row_(64 * warpgroup + 16 * ((threadIdx.x / 32) % 4) + lane_ / 4),
        q_descriptor_(ptx::wgmma_descriptor(
            ptx::smem_address(storage.q) + warpgroup * 64 * 128, 16)),
        k_descriptor_(ptx::wgmma_descriptor(ptx::smem_address(storage.k), 16)),
        v_descriptor_(
            ptx::wgmma_descriptor(ptx::smem_address(storage.v), kN * 128)) {}

  __device__ __forceinline__ void Run() {
    while (true) {
      ptx::mbarrier_wait(At(Address(storage_.tile_full), slot_), slot_.phase);
      const TileInfo& info = storage_.tiles[slot_.stage];
      if (!ptx::uniform(info.is_valid)) break;
      ConsumeTile(info);
      __syncwarp();
      Release(Address(storage_.tile_empty), slot_);
      slot_.Advance();
    }
  }

 private:
  __device__ __forceinline__ void ConsumeTile(const TileInfo& info) {
    float o[kDv / 2];
    OnlineSoftmax softmax;
    softmax.Reset();
    const float c = kScoreMod ? 1.0f : info.scale_log2;
    // Key blocks of the tile, and those of them that this warpgroup's rows see.
    const int first_row = info.row0 + 64 * warpgroup_;
    const int last_row = min(first_row + 63, info.row0 + info.num_rows - 1);
    const int low = max(0, first_row + info.low_offset);
    const int high = min(info.len_kv, last_row + info.high_offset);
    const int sees = last_row >= first_row && low < high;
    const int tile_begin = ptx::uniform(info.block_begin);
    const int tile_end = ptx::uniform(info.block_end);
    const int begin = ptx::uniform(sees ? low / kN : tile_begin);
    const int end = ptx::uniform(sees ? (high + kN - 1) / kN : tile_begin);
    SkipBlocks(tile_end - end);
    if (begin < end) {
      RunKeyLoop(info, begin, end - 1, c, softmax, o);
    } else {
#pragma unroll
      for (int i = 0; i < kDv / 2; ++i) o[i] = 0.0f;
      if (tile_begin < tile_end) SkipQ();
    }
    SkipBlocks(begin - tile_begin);
    float inverse[2], lse[2];
    softmax.Finish(c, info.sink_log2, inverse, lse);
    StoreLse(info, lse, row_, lane_ % 4);
    StoreO<kDv, Element>(info, o, inverse, row_, lane_ % 4,
                         params_.repair_flag);
  }

  // Takes part in the rings without using what is there.
  __device__ __forceinline__ void SkipBlocks(int blocks) {
#pragma unroll 1
    for (int i = 0; i < blocks; ++i) {
      ptx::mbarrier_wait(At(Address(storage_.k_full), k_), k_.phase);
      Release(Address(storage_.k_empty), k_);
      k_.Advance();
      ptx::mbarrier_wait(At(Address(storage_.v_full), v_), v_.phase);
      Release(Address(storage_.v_empty), v_);
      v_.Advance();
    }
  }
  __device__ __forceinline__ void SkipQ() {
    ptx::mbarrier_wait(At(Address(storage_.q_full), q_), q_.phase);
    Release(Address(storage_.q_empty), q_);
    q_.Advance();
  }

  __device__ __forceinline__ void RunKeyLoop(const TileInfo& info,
                                             int block_begin, int block,
                                             float c, OnlineSoftmax& softmax,
                                             float (&o)[kDv / 2]) {
    const RowBounds loaded(info, info.row0 + 64 * warpgroup_, info.row0 + row_,
                           kN);
    RowBounds bounds = loaded;
    bounds.clear_begin = ptx::uniform(loaded.clear_begin);
    bounds.clear_end = ptx::uniform(loaded.clear_end);
    const ScoreMod mod{info.scale_log2, info.softcap, info.slope_log2};
    const float diagonal =
        static_cast<float>(info.row0 + row_ + info.diagonal_shift);
    const bool scrub = ptx::uniform(info.scrub);
    float s[kN / 2];
    uint32_t p[kN / 4];

    ptx::mbarrier_wait(At(Address(storage_.q_full), q_), q_.phase);
    ptx::mbarrier_wait(At(Address(storage_.k_full), k_), k_.phase);
    ptx::wgmma_fence();
    IssueQk(s);
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    Release(Address(storage_.k_empty), k_);
    k_.Advance();
    if (block == block_begin) Release(Address(storage_.q_empty), q_);
    SoftmaxStep(s, block, bounds, mod, diagonal, c, softmax);
    softmax.rescale[0] = softmax.rescale[1] = 1.0f;  // nothing in O yet
    RoundP(s, p);
    if (scrub) ScrubV(info.len_kv - block * kN);

    int accumulate = 0;
    while (--block >= block_begin) {
      ptx::mbarrier_wait(At(Address(storage_.k_full), k_), k_.phase);
      ptx::wgmma_fence();
      IssueQk(s);
      ptx::wgmma_commit_group();
      RescaleO(softmax, o);
      ptx::mbarrier_wait(At(Address(storage_.v_full), v_), v_.phase);
      ptx::wgmma_fence();
      IssuePv(p, o, accumulate);
      ptx::wgmma_commit_group();
      accumulate = 1;
      ptx::wgmma_wait_group<1>();
      Release(Address(storage_.k_empty), k_);
      k_.Advance();
      if (block == block_begin) Release(Address(storage_.q_empty), q_);
      SoftmaxStep(s, block, bounds, mod, diagonal, c, softmax);
      ptx::mbarrier_arrive_if_negative(Address(storage_.k_empty),
                                       softmax.sum[0] + softmax.sum[1]);
      ptx::wgmma_wait_group<0>();
      Release(Address(storage_.v_empty), v_);
      v_.Advance();
      RoundP(s, p);
    }
    q_.Advance();

    RescaleO(softmax, o);
    ptx::mbarrier_wait(At(Address(storage_.v_full), v_), v_.phase);
    ptx::wgmma_fence();
    IssuePv(p, o, accumulate);
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    Release(Address(storage_.v_empty), v_);
    v_.Advance();
  }

  // S = Q K^T of the block in k_'s stage.
  __device__ __forceinline__ void IssueQk(float (&s)[kN / 2]) const {
    const uint64_t q =
        q_descriptor_ + q_.stage * static_cast<uint32_t>(Storage::kQBytes / 16);
    const uint64_t k =
        k_descriptor_ + k_.stage * static_cast<uint32_t>(Storage::kKBytes / 16);
    ptx::WgmmaSs<kN, Element>::template issue<false>(s, q, k);
#pragma unroll
    for (int step = 1; step < kD / 16; ++step) {
      const int chunk = step / 4;
      const int within = (step % 4) * (32 / 16);
      ptx::WgmmaSs<kN, Element>::template issue<true>(
          s, q + chunk * (Shape::kTileQ * 128 / 16) + within,
          k + chunk * (kN * 128 / 16) + within);
    }
  }

  // O = P V (+ O if `accumulate`) of the block in v_'s stage.
  __device__ __forceinline__ void IssuePv(const uint32_t (&p)[kN / 4],
                                          float (&o)[kDv / 2],
                                          int accumulate) const {
    const uint64_t v =
        v_descriptor_ + v_.stage * static_cast<uint32_t>(Storage::kVBytes / 16);
#pragma unroll
    for (int step = 0; step < kN / 16; ++step) {
      ptx::WgmmaRs<kDv, Element>::issue(o, p + 4 * step,
                                        v + step * (16 * 128 / 16),
                                        step == 0 ? accumulate : 1);
    }
  }

  __device__ __forceinline__ void SoftmaxStep(float (&s)[kN / 2], int block,
                                              const RowBounds& bounds,
                                              const ScoreMod& mod,
                                              float diagonal, float c,
                                              OnlineSoftmax& softmax) const {
    const int column = block * kN + 2 * (lane_ % 4);
    if constexpr (kScoreMod) {
      ModifyScores<kN>(s, mod, diagonal - static_cast<float>(column));
    }
    if (block >= bounds.clear_end) MaskAbove<kN>(s, bounds, column);
    if (block < bounds.clear_begin) MaskBelow<kN>(s, bounds, column);
    softmax.template Step<kN>(s, c);
  }

  __device__ __forceinline__ void RescaleO(const OnlineSoftmax& softmax,
                                           float (&o)[kDv / 2]) const {
    // Multiplying by 1 changes no bit, so the vote decides time alone.
    if (__any_sync(0xffffffffu, softmax.NeedsRescale())) softmax.Rescale(o);
  }

  // P in the products' element type, laid out as A fragments.
  __device__ __forceinline__ void RoundP(const float (&s)[kN / 2],
                                         uint32_t (&p)[kN / 4]) const {
#pragma unroll
    for (int i = 0; i < kN / 4; ++i) {
      p[i] = ptx::pack<Element>(s[2 * i], s[2 * i + 1]);
    }
  }

  // Zeros rows [first, kN) of V in its stage: P is 0 there, but 0 * NaN is not.
  // Each warpgroup does it for itself; both write the same zeros.
  __device__ __forceinline__ void ScrubV(int first) const {
    if (first >= kN) return;
    ptx::mbarrier_wait(At(Address(storage_.v_full), v_), v_.phase);
    uint8_t* v = storage_.v[v_.stage];
    const int rows = kN - first;
    for (int i = threadIdx.x % 128; i < rows * (kDv / 8); i += 128) {
      const int row = first + i / (kDv / 8);
      const int piece = i % (kDv / 8);  // of 16 bytes; the swizzle permutes
      const int box = piece / 8;
      *reinterpret_cast<uint4*>(v + (box * kN + row) * 128 + piece % 8 * 16) =
          make_uint4(0, 0, 0, 0);
    }
    ptx::fence_proxy_async();
    ptx::named_barrier_sync(kScrubBarrier + warpgroup_, 128);
  }

  // One arrival a warp: each waits for its own share of the products.
  template <int kStages>
  __device__ __forceinline__ void Release(
      uint32_t empty, const RingPlace<kStages>& place) const {
    if (lane_ == 0) ptx::mbarrier_arrive(At(empty, place));
  }

  static constexpr uint32_t kScrubBarrier = 1;  // and the next two

  static __device__ __forceinline__ uint32_t Address(const void* pointer) {
    return ptx::smem_address(pointer);
  }

  const PrefillParams& params_;
  Storage& storage_;
  const int warpgroup_;
  const int lane_;
  const int row_;
  const uint64_t q_descriptor_, k_descriptor_, v_descriptor_;
  RingPlace<kTileSlots> slot_;
  RingPlace<Shape::kQStages> q_;
  RingPlace<Shape::kKvStages> k_, v_;
};

// ---- Kernel -----------------------------------------------------------------

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
       kLoaders + kConsumerWarps + (scrubs ? 1 : 0));
  init(storage.q_full, Shape::kQStages, 1);
  init(storage.q_empty, Shape::kQStages, kConsumerWarps);
  init(storage.k_full, Shape::kKvStages, 1);
  init(storage.k_empty, Shape::kKvStages, kConsumerWarps);
  init(storage.v_full, Shape::kKvStages, 1);
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
