// Masks by run-time bounds, and score modifications.
#pragma once

#include <cstdint>

#include "kernels/sm90/softmax.cuh"

namespace attendant::kernels::sm90 {

// Bounds of one thread's two rows against keys: key j is visible to row r iff
// low[r] <= j < high[r]. And of its warpgroup: blocks [0, clear_end) need no
// upper, blocks from clear_begin on no lower bound.
struct RowBounds {
  int low[2], high[2];
  int clear_begin, clear_end;

  // `first_row`: of the warpgroup's 64, `row`: of this thread, both in the
  // sequence.
  __device__ __forceinline__ RowBounds(const TileInfo& info, int first_row,
                                       int row, int tile_kv) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      low[r] = row + 8 * r + info.low_offset;
      high[r] = min(info.len_kv, row + 8 * r + info.high_offset);
    }
    clear_begin =
        (max(0, first_row + 63 + info.low_offset) + tile_kv - 1) / tile_kv;
    clear_end =
        max(0, min(info.len_kv, first_row + info.high_offset)) / tile_kv;
  }
};

// `column`: the thread's first key of the block.
template <int kColumns>
__device__ __forceinline__ void MaskAbove(float (&s)[kColumns / 2],
                                          const RowBounds& bounds, int column) {
  const int high[2] = {bounds.high[0] - column, bounds.high[1] - column};
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) {
    if (8 * (i / 4) + i % 2 >= high[(i / 2) % 2]) s[i] = -INFINITY;
  }
}

template <int kColumns>
__device__ __forceinline__ void MaskBelow(float (&s)[kColumns / 2],
                                          const RowBounds& bounds, int column) {
  const int low[2] = {bounds.low[0] - column, bounds.low[1] - column};
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) {
    if (8 * (i / 4) + i % 2 < low[(i / 2) % 2]) s[i] = -INFINITY;
  }
}

// `diagonal`: row + shift - the thread's first key, of the first of its rows.
template <int kColumns>
__device__ __forceinline__ void ModifyScores(float (&s)[kColumns / 2],
                                             const ScoreMod& mod,
                                             float diagonal) {
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) {
    const float offset =
        static_cast<float>(8 * ((i / 2) % 2) - 8 * (i / 4) - i % 2);
    s[i] = mod(s[i], fabsf(diagonal + offset));
  }
}

}  // namespace attendant::kernels::sm90
