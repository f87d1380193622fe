// Tiles of Q, K and V from global into shared memory.
//
// A tile in shared memory: rows of kHeadDim 16-bit elements, in panels of 64
// (128 bytes); within a panel the 16-byte chunk c of row r lies at c ^ (r % 8),
// so that the eight rows an ldmatrix reads hit all banks. Elements past the
// true head size and rows past the end are zero.
#pragma once

#include <cstdint>

#include "kernels/sm80/ptx/cp_async.cuh"
#include "kernels/sm80/work.cuh"

namespace attendant::kernels::sm80 {

// threadIdx.x, read anew: what derives from it is not kept in registers across
// the main loop, where the accumulators need them.
__device__ __forceinline__ uint32_t FreshThreadIndex() {
  uint32_t index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}

// 16 bytes at `global` of which the first `valid` count; `global` is aligned to
// `copy_bytes`. The 2-byte form is synchronous: the same barriers cover it.
__device__ __forceinline__ void CopyChunkNarrow(uint32_t shared,
                                                const std::byte* global,
                                                int valid, int copy_bytes) {
  if (copy_bytes == 16) {
    ptx::cp_async_16(shared, global, valid);
  } else if (copy_bytes == 8) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      ptx::cp_async_8(shared + 8 * i, global + 8 * i,
                      min(max(valid - 8 * i, 0), 8));
    }
  } else if (copy_bytes == 4) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      ptx::cp_async_4(shared + 4 * i, global + 4 * i,
                      min(max(valid - 4 * i, 0), 4));
    }
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint16_t element =
          2 * i < valid ? reinterpret_cast<const uint16_t*>(global)[i] : 0;
      asm volatile("st.shared.u16 [%0], %1;" ::"r"(shared + 2 * i), "h"(element)
                   : "memory");
    }
  }
}

// Enqueues rows [first, first + kRows) of K or V, of which those below `end`
// exist. A thread copies the same chunk of every (kThreads / 8)-th row.
//
// Narrow: any alignment; what does not exist becomes 0. Else head_dim is a
// multiple of 8: chunks past it are left as they are (see ZeroTails), and rows
// past the end repeat the last one, whose scores are masked. A copy that fills
// with zeros takes three times the instructions.
template <int kHeadDim, int kRows, int kThreads, bool kNarrow>
__device__ __forceinline__ void LoadKv(uint32_t shared, const KvSource& source,
                                       int first, int end, int copy_bytes) {
  constexpr int kRowStep = kThreads / 8;
  constexpr int kPitch = kHeadDim * 2;
  static_assert(kRows % kRowStep == 0 && kRowStep % 8 == 0);
  const uint32_t thread = FreshThreadIndex();
  const int row = static_cast<int>(thread / 8);
  const int chunk = static_cast<int>(thread % 8);
  const int64_t row_bytes = 2 * source.row;
  const int valid = 2 * source.head_dim - chunk * 16;
  const uint32_t to = shared + row * kPitch + (chunk ^ (row % 8)) * 16;
  const std::byte* base =
      reinterpret_cast<const std::byte*>(source.data) + chunk * 16;
#pragma unroll
  for (int i = 0; i < kRows / kRowStep; ++i) {
    const int key = first + row + i * kRowStep;
    const std::byte* from = base + min(key, end - 1) * row_bytes;
#pragma unroll
    for (int panel = 0; panel < kHeadDim / 64; ++panel) {
      const uint32_t at = to + i * kRowStep * kPitch + panel * 128;
      if constexpr (kNarrow) {
        const int bytes = key < end ? min(max(valid - panel * 128, 0), 16) : 0;
        CopyChunkNarrow(at, from + panel * 128, bytes, copy_bytes);
      } else if (valid > panel * 128) {
        ptx::cp_async_16(at, from + panel * 128);
      }
    }
  }
}

// Zeroes the chunks past head_dim in all slots of the ring: K in even ones, V
// in odd ones. Q is 0 there, but 0 * NaN is not.
template <int kHeadDim, int kRows, int kThreads>
__device__ __forceinline__ void ZeroTails(uint32_t ring, const TileWork& work,
                                          int slots) {
  constexpr int kPitch = kHeadDim * 2;
  const int chunk = threadIdx.x % 8;
  for (int row = threadIdx.x / 8; row < slots * kRows; row += kThreads / 8) {
    const int head_dim = work.kv[row / kRows % 2].head_dim;
#pragma unroll
    for (int panel = 0; panel < kHeadDim / 64; ++panel) {
      if (panel * 64 + chunk * 8 < head_dim) continue;
      asm volatile(
          "st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(
              ring + row * kPitch + panel * 128 + (chunk ^ (row % 8)) * 16),
          "r"(0)
          : "memory");
    }
  }
}

// Q's tile: packed row r is head r % pack of position r / pack.
template <int kHeadDim, int kThreads, bool kNarrow>
__device__ __forceinline__ void LoadQ(uint32_t shared, const TileWork& work,
                                      int q_rows) {
  constexpr int kPitch = kHeadDim * 2;
  const int chunk = threadIdx.x % 8;
  const int valid = 2 * work.head_dim - chunk * 16;
  for (int r = threadIdx.x / 8; r < q_rows; r += kThreads / 8) {
    const bool exists = r < work.row_count;
    int position = work.row_begin + (exists ? r : 0);
    int head = 0;
    if (work.pack > 1) {
      head = position % work.pack;
      position /= work.pack;
    }
    const std::byte* from = reinterpret_cast<const std::byte*>(
        work.q + position * work.q_row + head * work.q_head + chunk * 8);
    const uint32_t to = shared + r * kPitch + (chunk ^ (r % 8)) * 16;
#pragma unroll
    for (int panel = 0; panel < kHeadDim / 64; ++panel) {
      const int bytes = exists ? min(max(valid - panel * 128, 0), 16) : 0;
      if constexpr (kNarrow) {
        CopyChunkNarrow(to + panel * 128, from + panel * 128, bytes,
                        work.copy_bytes);
      } else {
        ptx::cp_async_16(to + panel * 128, from + panel * 128, bytes);
      }
    }
  }
}

}  // namespace attendant::kernels::sm80
