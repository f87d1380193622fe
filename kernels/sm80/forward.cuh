// Attention forward on mma.sync: one CTA, one tile of query rows.
//
// Math.   S = scale Q K^T, P = softmax of the visible S, O = P V, LSE = ln sum
//         exp S; the recurrence for m, l and O stands in online_softmax.cuh. A
//         row that sees no key gives O = 0, LSE = -inf.
// Work.   blockIdx.x -> (rows, head, batch entry, split of the keys), looked up
//         in the launch's segments (work.cuh). A warp owns 16 or 32 rows from Q
//         to O, so warps never exchange anything. Key blocks go upward from the
//         tile's first visible key; a warp passes over blocks none of its rows
//         see. FLOP: 2 (d + d_v) per visible pair; bound by mma.sync issue
//         (about 62 % of wgmma's rate on Hopper) and, at d 256, by shared
//         memory.
// Shared. The Q tile, then a ring of 2 or 4 slots through which the tiles pass
//         in the order K0 V0 K1 V1 ... by cp.async.
// Order.  Step s (one K or V tile): wait for its copies; barrier (all warps see
//         them, and all are done with step s - 1); enqueue step s + slots - 1
//         into the slot of step s - 1; multiply.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/sm80/copy.cuh"
#include "kernels/sm80/epilogue.cuh"
#include "kernels/sm80/mask.cuh"
#include "kernels/sm80/online_softmax.cuh"
#include "kernels/sm80/products.cuh"
#include "kernels/sm80/score_mod.cuh"
#include "kernels/sm80/traits.cuh"
#include "kernels/sm80/work.cuh"

namespace attendant::kernels::sm80 {

// The ring of K and V tiles, as one thread sees it. Tile K of block b is step
// 2 (b - first) of the pipeline, V the step after it; step s lies in slot
// s % slots.
template <typename T>
class KvRing {
 public:
  // Enqueues the first slots - 1 steps.
  __device__ __forceinline__ KvRing(const TileWork& work, uint32_t shared,
                                    int slots, int first_block, int end_block)
      : work_(work), begin_(shared), slots_(slots), end_block_(end_block) {
    use_ = begin_;
    for (int step = 0; step < slots_ - 1; ++step) {
      Load(begin_ + step * T::kSlotBytes, first_block + step / 2, step % 2);
    }
    freed_ = begin_ + (slots_ - 1) * T::kSlotBytes;
  }

  // Waits for the next tile, K (is_v = 0) or V (1) of `block`, gives its
  // address, and enqueues the step slots - 1 ahead into the slot of the tile
  // before, which all threads are done with: they all call this.
  __device__ __forceinline__ uint32_t Advance(int block, int is_v) {
    if (slots_ == 4) {
      ptx::cp_async_wait_group<2>();
    } else {
      ptx::cp_async_wait_group<0>();
    }
    __syncthreads();
    const int ahead = slots_ - 1 + is_v;
    Load(freed_, block + ahead / 2, ahead % 2);
    const uint32_t tile = use_;
    freed_ = tile;
    use_ += T::kSlotBytes;
    if (use_ == begin_ + slots_ * T::kSlotBytes) use_ = begin_;
    return tile;
  }

 private:
  // One group, empty past the last block.
  __device__ __forceinline__ void Load(uint32_t slot, int block, int is_v) {
    if (block < end_block_) {
      LoadKv<T::kHeadDim, T::kKeys, T::kThreads, T::kGeneral>(
          slot, work_.kv[is_v], block * T::kKeys, work_.len_kv,
          work_.copy_bytes);
    }
    ptx::cp_async_commit_group();
  }

  const TileWork& work_;
  const uint32_t begin_;
  const int slots_;
  const int end_block_;
  uint32_t use_, freed_;
};

// All key blocks of the tile.
template <typename T>
__device__ __forceinline__ void VisitKeys(const LaunchArgs& args,
                                          const TileWork& work,
                                          uint32_t shared_q, int warp_row,
                                          RowState<T>& state) {
  const int first_block = work.key_begin / T::kKeys;
  const int end_block = (work.key_end + T::kKeys - 1) / T::kKeys;
  const int lane = threadIdx.x % 32;
  LoadQ<T::kHeadDim, T::kThreads, T::kGeneral>(shared_q, work, args.q_rows);
  const uint32_t slots = shared_q + args.q_rows * T::kPitch;
  if (!T::kGeneral &&
      min(work.kv[0].head_dim, work.kv[1].head_dim) < T::kHeadDim) {
    ZeroTails<T::kHeadDim, T::kKeys, T::kThreads>(slots, work, args.ring_slots);
  }
  KvRing<T> ring(work, slots, args.ring_slots, first_block, end_block);

  const uint32_t q =
      shared_q + warp_row * T::kPitch + RowMajorOffset(lane, T::kPitch);
  const WarpKeys& keys = work.warp_keys[threadIdx.x / 32];
  const float to_log2 = T::kGeneral ? 1.0f : work.softmax_scale * kLog2E;

  for (int block = first_block; block < end_block; ++block) {
    const int32_t key = block * T::kKeys;
    const int32_t key_end = key + T::kKeys;
    const bool visible = key < keys.end && key_end > keys.begin;
    Scores<T> scores;

    const uint32_t k = ring.Advance(block, 0);
    if (visible) {
      MultiplyQk<T>(q, k + ColumnMajorOffset(lane, T::kPitch), scores);
      if constexpr (T::kGeneral) {
        ModifyScores<T>(work, keys, warp_row, key, scores);
      } else {
        MaskScores<T>(work, keys, key, scores);
      }
      UpdateMax<T>(scores, to_log2, state);
    }

    const uint32_t v = ring.Advance(block, 1);
    if (visible) {
      AccumulateValues<T>(scores, to_log2, v + RowMajorOffset(lane, T::kPitch),
                          state);
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(T::kThreads, T::kMinCtas)
    ForwardKernel(const __grid_constant__ LaunchArgs args) {
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ TileWork work;
  static_assert(sizeof(TileWork) <= kStaticShared);
  if (threadIdx.x < 32) LocateTile(args, work);
  __syncthreads();
  int warp_row = threadIdx.x / 32 * T::kWarpRows;
  if (threadIdx.x % 32 == 0) {
    work.warp_keys[threadIdx.x / 32] = KeysOfWarp<T>(work, warp_row);
  }
  __syncwarp();

  RowState<T> state;
  ResetState<T>(state);
  if (work.key_begin < work.key_end) {
    VisitKeys<T>(args, work, ptx::SharedAddress(shared), warp_row, state);
  }

  // Nothing that the epilogue derives from its thread index is to live through
  // the main loop.
  warp_row = static_cast<int>(FreshThreadIndex() / 32) * T::kWarpRows;
  if (warp_row >= work.row_count) return;
  SumRows<T>(state);
  if (work.partial_ml != nullptr) {
    StoreMaxAndSum<T>(work, warp_row, state);
    StoreFloats<T>(work, warp_row, state);
    return;
  }
  EndRows<T>(work, warp_row, args.repair_flag, state);
  if (work.output_fp32) {
    StoreFloats<T>(work, warp_row, state);
  } else {
    StoreElements<T>(work, warp_row, shared, state);
  }
}

// Launches ForwardKernel<T>; `shared_bytes` of dynamic shared memory.
template <typename T>
absl::Status LaunchForwardKernel(int64_t num_tiles, int64_t shared_bytes,
                                 const LaunchArgs& args, cudaStream_t stream) {
  RETURN_IF_CUDA_ERROR(cudaFuncSetAttribute(
      ForwardKernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
      static_cast<int>(shared_bytes)));
  ForwardKernel<T><<<static_cast<unsigned>(num_tiles), T::kThreads,
                     static_cast<size_t>(shared_bytes), stream>>>(args);
  return cuda::CudaStatus(cudaGetLastError(), "sm80 forward");
}

// One of the four files forward_*.cu: all classes of one (type, variant).
template <typename Element, bool kGeneral>
absl::Status LaunchForwardOfClass(int head_class, int64_t num_tiles,
                                  int64_t shared_bytes, const LaunchArgs& args,
                                  cudaStream_t stream) {
  switch (head_class) {
    case 0:
      return LaunchForwardKernel<Traits<Element, 0, kGeneral>>(
          num_tiles, shared_bytes, args, stream);
    case 1:
      return LaunchForwardKernel<Traits<Element, 1, kGeneral>>(
          num_tiles, shared_bytes, args, stream);
    case 2:
      return LaunchForwardKernel<Traits<Element, 2, kGeneral>>(
          num_tiles, shared_bytes, args, stream);
    case 3:
      return LaunchForwardKernel<Traits<Element, 3, kGeneral>>(
          num_tiles, shared_bytes, args, stream);
  }
  return absl::InternalError("sm80: no such head class");
}

}  // namespace attendant::kernels::sm80
