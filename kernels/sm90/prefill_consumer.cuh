// The other warpgroups of the prefill kernel: products, softmax, stores. Order
// and barriers: see prefill.cuh.
#pragma once

#include <cstdint>

#include "kernels/sm90/epilogue.cuh"
#include "kernels/sm90/kernel_params.h"
#include "kernels/sm90/mask.cuh"
#include "kernels/sm90/prefill_storage.cuh"
#include "kernels/sm90/ptx/mbarrier.cuh"
#include "kernels/sm90/ptx/register.cuh"
#include "kernels/sm90/ptx/wgmma.cuh"
#include "kernels/sm90/softmax.cuh"
#include "kernels/sm90/tile_info.cuh"
#include "kernels/sm90/tile_table.h"

namespace attendant::kernels::sm90 {

template <typename Shape, typename Element, bool kScoreMod>
class Consumer {
 public:
  using Storage = SharedStorage<Shape>;
  static constexpr int kRows = kWarpgroupRows;
  static constexpr int kN = Shape::kTileKv;
  static constexpr int kD = Shape::kHeadDimQk;
  static constexpr int kDv = Shape::kHeadDimV;
  // Larger heads have no registers for O and the next scores at once.
  static constexpr bool kOverlapsStore = kD <= 128 && kDv <= 128;

  // `warpgroup`: 0..kWarpgroups-1, uniform.
  __device__ __forceinline__ Consumer(const PrefillParams& params,
                                      Storage& storage, int warpgroup)
      : params_(params),
        storage_(storage),
        warpgroup_(warpgroup),
        lane_(threadIdx.x % 32),
        row_(kRows * warpgroup + 16 * ((threadIdx.x / 32) % 4) + lane_ / 4),
        q_descriptor_(ptx::wgmma_descriptor(
            ptx::smem_address(storage.q) + warpgroup * kRows * 128, 16)),
        k_descriptor_(ptx::wgmma_descriptor(ptx::smem_address(storage.k), 16)),
        v_descriptor_(
            ptx::wgmma_descriptor(ptx::smem_address(storage.v), kN * 128)) {}

  __device__ __forceinline__ void Run() {
    Work work = Await(slot_);
    while (work.is_valid) {
      if constexpr (kOverlapsStore) {
        if (work.begin < work.end) {
          RunTiles(work);
          continue;
        }
      }
      RunTile(work);
    }
  }

 private:
  // What a warpgroup must know of a tile to begin it; uniform.
  struct Work {
    int is_valid;
    int begin, end;  // key blocks that this warpgroup's rows see
    int skipped;     // key blocks of the tile after those
  };

  // Waits for the tile of `slot` and reads it.
  __device__ __forceinline__ Work
  Await(const RingPlace<kTileSlots>& slot) const {
    ptx::mbarrier_wait(At(Address(storage_.tile_full), slot), slot.phase);
    const TileInfo& info = storage_.tiles[slot.stage];
    const int first_row = info.row0 + kRows * warpgroup_;
    const int last_row =
        min(first_row + kRows - 1, info.row0 + info.num_rows - 1);
    const int low = max(0, first_row + info.low_offset);
    const int high = min(info.len_kv, last_row + info.high_offset);
    const int sees = first_row >= 0 && last_row >= first_row && low < high;
    const int end = sees ? (high + kN - 1) / kN : info.block_begin;
    return {ptx::uniform(info.is_valid),
            ptx::uniform(sees ? low / kN : info.block_begin), ptx::uniform(end),
            ptx::uniform(info.block_end - end)};
  }

  // Tiles in which this warpgroup sees keys, up to the first in which it does
  // not: `work` is the first, and then the one that was not done. The answer of
  // one is stored while the first product of the next runs.
  __device__ __forceinline__ void RunTiles(Work& work) {
    float s[kN / 2];
    float o[kDv / 2];
    float inverse[2];
    Begin(work, s);
    ptx::wgmma_wait_group<0>();
    while (true) {
      const TileInfo& info = storage_.tiles[slot_.stage];
      RunKeyLoop(info, work, s, o, inverse);
      RingPlace<kTileSlots> next_slot = slot_;
      next_slot.Advance();
      const Work next = Await(next_slot);
      const int overlaps =
          ptx::uniform(next.is_valid && info.out_is_vectorized);
      EndKeyLoop(info, work);
      work = next;
      if (!overlaps || work.begin >= work.end) {
        StoreO<kDv, Element>(info, o, inverse, row_, lane_ % 4,
                             params_.repair_flag);
        EndTile();
        return;
      }
      Begin(work, s);
      StoreOVectorized<kDv, Element>(info, o, inverse, row_, lane_ % 4,
                                     params_.repair_flag);
      EndTile();
      ptx::wgmma_wait_group<0>();
    }
  }

  // Any tile: `work` is this one, and then the next.
  __device__ __forceinline__ void RunTile(Work& work) {
    RingPlace<kTileSlots> next_slot = slot_;
    next_slot.Advance();
    Work next;
    const TileInfo& info = storage_.tiles[slot_.stage];
    float s[kN / 2];
    float o[kDv / 2];
    float inverse[2];
    if (!kOverlapsStore && work.begin < work.end) {
      Begin(work, s);
      ptx::wgmma_wait_group<0>();
      RunKeyLoop(info, work, s, o, inverse);
      next = Await(next_slot);
      EndKeyLoop(info, work);
    } else {
      SkipBlocks(work.skipped);
      if (work.skipped > 0) SkipQ();
      if (!ptx::uniform(info.row0 + kRows * warpgroup_ >= 0)) {
        EndTile();
        work = Await(slot_);
        return;
      }
      OnlineSoftmax softmax;
      softmax.Reset();
      Finish(info, softmax, inverse);
      next = Await(next_slot);
#pragma unroll
      for (int i = 0; i < kDv / 2; ++i) o[i] = 0.0f;
    }
    StoreO<kDv, Element>(info, o, inverse, row_, lane_ % 4,
                         params_.repair_flag);
    EndTile();
    work = next;
  }

  __device__ __forceinline__ void EndKeyLoop(const TileInfo& info,
                                             const Work& work) {
    ptx::wgmma_wait_group<0>();
    Release(Address(storage_.v_empty), v_);
    v_.Advance();
    SkipBlocks(work.begin - ptx::uniform(info.block_begin));
  }

  __device__ __forceinline__ void EndTile() {
    ptx::mbarrier_arrive(At(Address(storage_.tile_empty), slot_));
    slot_.Advance();
  }

  // Issues the first product of a tile.
  __device__ __forceinline__ void Begin(const Work& work, float (&s)[kN / 2]) {
    SkipBlocks(work.skipped);
    ptx::mbarrier_wait(At(Address(storage_.q_full), q_), q_.phase);
    ptx::mbarrier_wait(At(Address(storage_.k_full), k_), k_.phase);
    ptx::wgmma_fence();
    IssueQk(s);
    ptx::wgmma_commit_group();
  }

  // Scales of O, and LSE, after the last block's softmax.
  __device__ __forceinline__ void Finish(const TileInfo& info,
                                         const OnlineSoftmax& softmax,
                                         float (&inverse)[2]) const {
    float lse[2];
    softmax.Finish(ScaleOf(info), info.sink_log2, inverse, lse);
    StoreLse(info, lse, row_, lane_ % 4);
  }

  // Takes part in the rings without using what is there.
  __device__ __forceinline__ void SkipBlocks(int blocks) {
#pragma unroll 1
    for (int i = 0; i < blocks; ++i) {
      ptx::mbarrier_wait(At(Address(storage_.k_full), k_), k_.phase);
      __syncwarp();
      Release(Address(storage_.k_empty), k_);
      k_.Advance();
      ptx::mbarrier_wait(At(Address(storage_.v_full), v_), v_.phase);
      __syncwarp();
      Release(Address(storage_.v_empty), v_);
      v_.Advance();
    }
  }
  __device__ __forceinline__ void SkipQ() {
    ptx::mbarrier_wait(At(Address(storage_.q_full), q_), q_.phase);
    __syncwarp();
    Release(Address(storage_.q_empty), q_);
    q_.Advance();
  }

  static __device__ __forceinline__ float ScaleOf(const TileInfo& info) {
    return kScoreMod ? 1.0f : info.scale_log2;
  }

  // Right to left. `s`: the product of the first. Leaves the product of P and V
  // of the last one in flight, and what O must be multiplied by after it.
  __device__ __forceinline__ void RunKeyLoop(const TileInfo& info,
                                             const Work& work,
                                             float (&s)[kN / 2],
                                             float (&o)[kDv / 2],
                                             float (&inverse)[2]) {
    const int block_begin = work.begin;
    int block = work.end - 1;
    OnlineSoftmax softmax;
    softmax.Reset();
    const float c = ScaleOf(info);
    const RowBounds loaded(info, info.row0 + kRows * warpgroup_,
                           info.row0 + row_, kN);
    RowBounds bounds = loaded;
    bounds.clear_begin = ptx::uniform(loaded.clear_begin);
    bounds.clear_end = ptx::uniform(loaded.clear_end);
    const ScoreMod mod{info.scale_log2, info.softcap, info.slope_log2};
    const float diagonal =
        static_cast<float>(info.row0 + row_ + info.diagonal_shift);
    const bool scrub = ptx::uniform(info.scrub);
    uint32_t p[kN / 4];

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
    Finish(info, softmax, inverse);
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

}  // namespace attendant::kernels::sm90
