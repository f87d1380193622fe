// Which keys a warp's rows see by causality, window and lengths.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/sm80/copy.cuh"
#include "kernels/sm80/traits.cuh"
#include "kernels/sm80/work.cuh"

namespace attendant::kernels::sm80 {

// Row `row` of the tile (counted from its first) as a position of q.
__device__ __forceinline__ int32_t PositionOf(const TileWork& work, int row) {
  const int32_t packed = work.row_begin + row;
  return work.pack == 1 ? packed : packed / work.pack;
}
__device__ __forceinline__ int32_t HeadOf(const TileWork& work, int row) {
  return work.pack == 1 ? 0 : (work.row_begin + row) % work.pack;
}

// Of the warp whose rows start at `warp_row`; empty if it has no rows.
template <typename T>
__device__ __forceinline__ WarpKeys KeysOfWarp(const TileWork& work,
                                               int warp_row) {
  if (warp_row >= work.row_count) return {0, 0, 0, 0};
  const int last_row = min(warp_row + T::kWarpRows, work.row_count) - 1;
  const int32_t first = PositionOf(work, warp_row);
  const int32_t last = PositionOf(work, last_row);
  return {max(0, first + work.lo_shift), min(work.len_kv, last + work.hi_shift),
          max(0, last + work.lo_shift),
          min(work.len_kv, first + work.hi_shift)};
}

// Sets the scores of keys a row may not see to -inf. A select, not a sum: what
// stands there may be NaN. `key` is the block's first key; `keys` the warp's.
template <typename T>
__device__ __forceinline__ void MaskScores(const TileWork& work,
                                           const WarpKeys& keys, int32_t key,
                                           Scores<T>& scores) {
  const bool left = key < keys.all_begin;
  const bool right = key + T::kKeys > keys.all_end;
  if (!left && !right) return;
  const int thread = static_cast<int>(FreshThreadIndex());
  const int lane = thread % 32;
  const int warp_row = thread / 32 * T::kWarpRows;
  const int32_t first_column = key + 2 * (lane % 4);
#pragma unroll
  for (int f = 0; f < T::kFrags; ++f) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t position =
          PositionOf(work, warp_row + f * 16 + half * 8 + lane / 4);
      const int32_t end =
          min(work.len_kv, position + work.hi_shift) - first_column;
#pragma unroll
      for (int n = 0; n < T::kKeys / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& s = scores.s[f][n][2 * half + e];
          s = 8 * n + e < end ? s : -INFINITY;
        }
      }
      if (!left) continue;
      const int32_t begin = position + work.lo_shift - first_column;
#pragma unroll
      for (int n = 0; n < T::kKeys / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& s = scores.s[f][n][2 * half + e];
          s = 8 * n + e >= begin ? s : -INFINITY;
        }
      }
    }
  }
}

}  // namespace attendant::kernels::sm80
