// The general variant's scores: any scale, softcap, ALiBi and masks, in the
// contract's order and in natural units.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>

#include "kernels/sm80/mask.cuh"
#include "kernels/sm80/online_softmax.cuh"
#include "kernels/sm80/traits.cuh"

namespace attendant::kernels::sm80 {

// cap * tanh(x / cap). With y = x / cap: tanh y = 1 - 2 / (1 + e^2y), absolute
// error about 2e-7, where tanh.approx would be off by 2^-11; for small y, where
// that would cancel, the series, relative error below 1e-7.
__device__ __forceinline__ float Softcap(float x, float cap) {
  const float y = x / cap;
  if (fabsf(y) < 0.3f) {
    const float y2 = y * y;
    float series = fmaf(y2, 62.0f / 2835, -17.0f / 315);
    series = fmaf(y2, series, 2.0f / 15);
    series = fmaf(y2, series, -1.0f / 3);
    return fmaf(x * y2, series, x);
  }
  const float power = ptx::ex2(y * (2.0f * kLog2E));
  return fmaf(-2.0f * cap, __frcp_rn(1.0f + power), cap);
}

// What stands at entry `entry` of a mask row: added to the score; -inf where a
// boolean mask hides the key.
__device__ __forceinline__ float MaskTerm(DeviceMask kind, const std::byte* row,
                                          int64_t entry) {
  switch (kind) {
    case DeviceMask::kFloat32:
      return reinterpret_cast<const float*>(row)[entry];
    case DeviceMask::kFloat16:
      return __half2float(reinterpret_cast<const __half*>(row)[entry]);
    case DeviceMask::kBFloat16:
      return __bfloat162float(
          reinterpret_cast<const __nv_bfloat16*>(row)[entry]);
    default:
      return 0.0f;
  }
}
__device__ __forceinline__ bool MaskAllows(DeviceMask kind,
                                           const std::byte* row,
                                           int64_t entry) {
  if (kind == DeviceMask::kBoolBytes) return row[entry] != std::byte{0};
  if (kind == DeviceMask::kBoolBits) {
    return (static_cast<uint32_t>(row[entry / 8]) >> (entry % 8) & 1) != 0;
  }
  return true;
}

__device__ __forceinline__ const std::byte* MaskRow(const TileWork& work,
                                                    int32_t position,
                                                    int32_t head) {
  return work.mask + (position * work.mask_row + head * work.mask_head) *
                         MaskEntryBytes(work.mask_kind);
}

// One score: `dot` is q k of position `position`, head `head` of the unit and
// a key that length, causality and window let it see.
__device__ __forceinline__ float ModifiedScore(const TileWork& work,
                                               int32_t position, int32_t head,
                                               int32_t key, float dot) {
  float x = dot * work.softmax_scale;
  if (work.softcap > 0) {
    x = Softcap(x, work.softcap);
  }
  if (work.slopes != nullptr) {
    const int32_t distance = position + work.diagonal_shift - key;
    x = fmaf(-work.slopes[head], fabsf(static_cast<float>(distance)), x);
  }
  if (work.mask_kind != DeviceMask::kNone) {
    const std::byte* row = MaskRow(work, position, head);
    const int64_t entry = work.mask_key + key;
    if (!MaskAllows(work.mask_kind, row, entry)) return -INFINITY;
    x += MaskTerm(work.mask_kind, row, entry);
  }
  return x;
}

// Applies a function (score, row of the thread, key) to each of a thread's
// scores of the block that starts at `key`.
template <typename T, typename Function>
__device__ __forceinline__ void ForEachScore(int32_t key, Scores<T>& scores,
                                             Function function) {
  const int32_t first_column = key + 2 * (threadIdx.x % 4);
#pragma unroll
  for (int f = 0; f < T::kFrags; ++f) {
#pragma unroll
    for (int n = 0; n < T::kKeys / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        function(scores.s[f][n][e], 2 * f + e / 2,
                 first_column + 8 * n + e % 2);
      }
    }
  }
}

// The same for a whole block, feature by feature. Keys that a row may not see
// get -inf.
template <typename T>
__device__ __forceinline__ void ModifyScores(const TileWork& work,
                                             const WarpKeys& keys, int warp_row,
                                             int32_t key, Scores<T>& scores) {
  constexpr int kRows = 2 * T::kFrags;
  const int lane = threadIdx.x % 32;
  int32_t position[kRows], head[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int row = warp_row + r * 8 + lane / 4;
    position[r] = PositionOf(work, row);
    head[r] = HeadOf(work, row);
  }
  const float scale = work.softmax_scale;
  ForEachScore<T>(key, scores, [&](float& s, int, int32_t) { s *= scale; });
  if (work.softcap > 0) {
    const float cap = work.softcap;
    ForEachScore<T>(key, scores,
                    [&](float& s, int, int32_t) { s = Softcap(s, cap); });
  }
  if (work.slopes != nullptr) {
    float slope[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) slope[r] = work.slopes[head[r]];
    ForEachScore<T>(key, scores, [&](float& s, int r, int32_t column) {
      const int32_t distance = position[r] + work.diagonal_shift - column;
      s = fmaf(-slope[r], fabsf(static_cast<float>(distance)), s);
    });
  }
  const DeviceMask kind = work.mask_kind;
  if (kind != DeviceMask::kNone) {
    // Rows past the tile's end have no mask row: they read the last one's.
    const std::byte* mask[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = min(warp_row + r * 8 + lane / 4, work.row_count - 1);
      mask[r] = MaskRow(work, PositionOf(work, row), HeadOf(work, row));
    }
    ForEachScore<T>(key, scores, [&](float& s, int r, int32_t column) {
      if (column >= work.len_kv) return;
      const int64_t entry = work.mask_key + column;
      s = MaskAllows(kind, mask[r], entry) ? s + MaskTerm(kind, mask[r], entry)
                                           : -INFINITY;
    });
  }
  MaskScores<T>(work, keys, key, scores);
}

}  // namespace attendant::kernels::sm80
