// From a thread's row state to O and LSE, or to a split's partials.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/sm80/mask.cuh"
#include "kernels/sm80/online_softmax.cuh"
#include "kernels/sm80/traits.cuh"
#include "kernels/sm80/work.cuh"

namespace attendant::kernels::sm80 {

// What a row's O is multiplied by, and its LSE.
struct RowEnd {
  float inverse;  // 0 if the row saw nothing
  float lse;
};

// `l` without the sink; `sink` = -inf for none. `natural`: m is in natural
// units, as the general variant's, else in log2 units.
__device__ __forceinline__ RowEnd EndRow(float m, float l, float sink,
                                         bool natural) {
  if (l == 0.0f) return {0.0f, -INFINITY};
  const float over = natural ? (sink - m) * kLog2E : fmaf(sink, kLog2E, -m);
  const float total = l + ptx::ex2(over);
  const float lse = natural ? m + logf(l) : (m + log2f(l)) * kLn2;
  return {1.0f / total, lse};
}

// The sum with 0 turns -0 into 0: a block passed over and a masked one leave
// equal bits. A row that saw nothing is 0 whatever its accumulator holds
// (0 * NaN): its `inverse` is 0.
__device__ __forceinline__ float EndValue(float o, float inverse) {
  return inverse == 0.0f ? 0.0f : fmaf(o, inverse, 0.0f);
}

__device__ __forceinline__ void StoreElement(const TileWork& work, int64_t at,
                                             float value, __nv_bfloat16) {
  if (work.output_fp32) {
    static_cast<float*>(work.out)[at] = value;
  } else {
    static_cast<__nv_bfloat16*>(work.out)[at] = __float2bfloat16_rn(value);
  }
}
__device__ __forceinline__ void StoreElement(const TileWork& work, int64_t at,
                                             float value, __half) {
  if (work.output_fp32) {
    static_cast<float*>(work.out)[at] = value;
  } else {
    static_cast<__half*>(work.out)[at] = __float2half_rn(value);
  }
}

// Sums l over the four lanes of a row: every lane then has it.
template <typename T>
__device__ __forceinline__ void SumRows(RowState<T>& state) {
#pragma unroll
  for (int f = 0; f < T::kFrags; ++f) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float& l = state.l[f][half];
      l += __shfl_xor_sync(0xffffffff, l, 1);
      l += __shfl_xor_sync(0xffffffff, l, 2);
    }
  }
}

// Writes a split's m and l; its O follows by StoreFloats.
template <typename T>
__device__ __forceinline__ void StoreMaxAndSum(const TileWork& work,
                                               int warp_row,
                                               const RowState<T>& state) {
  const int lane = static_cast<int>(FreshThreadIndex() % 32);
  if (lane % 4 != 0) return;
#pragma unroll
  for (int f = 0; f < T::kFrags; ++f) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp_row + f * 16 + half * 8 + lane / 4;
      if (row >= work.row_count) continue;
      const int64_t pair = PositionOf(work, row) * work.partial_row +
                           HeadOf(work, row) * work.partial_head;
      work.partial_ml[2 * pair] = state.m[f][half];
      work.partial_ml[2 * pair + 1] = state.l[f][half];
    }
  }
}

// Turns the accumulators into O, writes LSE, and raises the repair flag if a
// row that has finite scores has an O that is not finite.
template <typename T>
__device__ __forceinline__ void EndRows(const TileWork& work, int warp_row,
                                        int32_t* repair_flag,
                                        RowState<T>& state) {
  const int lane = static_cast<int>(FreshThreadIndex() % 32);
  bool broken = false;
#pragma unroll
  for (int f = 0; f < T::kFrags; ++f) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp_row + f * 16 + half * 8 + lane / 4;
      const bool exists = row < work.row_count;
      const int head = HeadOf(work, row);
      const float sink = work.sinks == nullptr ? -INFINITY : work.sinks[head];
      const RowEnd end =
          EndRow(state.m[f][half], state.l[f][half], sink, T::kGeneral);
      float check = 0.0f;  // stays 0 while all is finite
#pragma unroll
      for (int n = 0; n < T::kHeadDim / 8; ++n) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          check = fmaf(state.o[f][n][e], 0.0f, check);
          state.o[f][n][e] = EndValue(state.o[f][n][e], end.inverse);
        }
      }
      broken |= exists && state.l[f][half] > 0.0f && !(check == 0.0f);
      if (exists && work.lse != nullptr && lane % 4 == 0) {
        work.lse[head * work.lse_head + PositionOf(work, row)] = end.lse;
      }
    }
  }
  if (broken) *repair_flag = 1;
}

// Where fp32 O of `row` starts: in the output, or in the partials of a split.
__device__ __forceinline__ float* FloatRow(const TileWork& work, int row) {
  const int64_t position = PositionOf(work, row);
  const int64_t head = HeadOf(work, row);
  if (work.partial_ml != nullptr) {
    return work.partial_o +
           (position * work.partial_row + head * work.partial_head) *
               work.head_dim_v;
  }
  return static_cast<float*>(work.out) + position * work.out_row +
         head * work.out_head;
}

// Writes O as fp32, element by element.
template <typename T>
__device__ __forceinline__ void StoreFloats(const TileWork& work, int warp_row,
                                            const RowState<T>& state) {
  const int lane = static_cast<int>(FreshThreadIndex() % 32);
  const int first_column = 2 * (lane % 4);
  const int columns_left = work.head_dim_v - first_column;
#pragma unroll
  for (int f = 0; f < T::kFrags; ++f) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp_row + f * 16 + half * 8 + lane / 4;
      if (row >= work.row_count) continue;
      float* out = FloatRow(work, row) + first_column;
#pragma unroll
      for (int n = 0; n < T::kHeadDim / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          if (8 * n + e < columns_left) {
            out[8 * n + e] = state.o[f][n][2 * half + e];
          }
        }
      }
    }
  }
}

// Writes O as 16-bit elements, through this warp's own rows of the Q tile at
// `shared` (swizzled as in copy.cuh), which nobody needs any more.
template <typename T>
__device__ __forceinline__ void StoreElements(const TileWork& work,
                                              int warp_row, std::byte* shared,
                                              const RowState<T>& state) {
  using Mma = ptx::Mma<typename T::Element>;
  const int lane = static_cast<int>(FreshThreadIndex() % 32);
  std::byte* rows = shared + warp_row * T::kPitch;
  __syncwarp();
#pragma unroll
  for (int f = 0; f < T::kFrags; ++f) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = f * 16 + half * 8 + lane / 4;
#pragma unroll
      for (int n = 0; n < T::kHeadDim / 8; ++n) {
        std::byte* at = rows + row * T::kPitch + (n / 8) * 128 +
                        ((n % 8) ^ (row % 8)) * 16 + (lane % 4) * 4;
        *reinterpret_cast<uint32_t*>(at) =
            Mma::Pack(state.o[f][n][2 * half], state.o[f][n][2 * half + 1]);
      }
    }
  }
  __syncwarp();
  // Eight lanes a row, 16 bytes each: or, where alignment or head size forbids
  // it, the same bytes one element at a time.
  const int chunk = lane % 8;
#pragma unroll 4
  for (int row = lane / 8; row < T::kWarpRows; row += 4) {
    if (warp_row + row >= work.row_count) break;
    uint16_t* out = static_cast<uint16_t*>(work.out) +
                    PositionOf(work, warp_row + row) * work.out_row +
                    HeadOf(work, warp_row + row) * work.out_head;
#pragma unroll
    for (int panel = 0; panel < T::kHeadDim / 64; ++panel) {
      const int column = panel * 64 + chunk * 8;
      const std::byte* from =
          rows + row * T::kPitch + panel * 128 + (chunk ^ (row % 8)) * 16;
      if (work.wide_output) {
        if (column < work.head_dim_v) {
          *reinterpret_cast<uint4*>(out + column) =
              *reinterpret_cast<const uint4*>(from);
        }
        continue;
      }
#pragma unroll 1
      for (int i = 0; i < min(8, work.head_dim_v - column); ++i) {
        out[column + i] = reinterpret_cast<const uint16_t*>(from)[i];
      }
    }
  }
}

}  // namespace attendant::kernels::sm80
