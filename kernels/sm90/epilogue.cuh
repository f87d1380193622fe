// O and LSE of a tile, from registers to memory.
#pragma once

#include <cstdint>

#include "kernels/sm90/ptx/math.cuh"
#include "kernels/sm90/tile_info.cuh"

namespace attendant::kernels::sm90 {

// x * 0 + sum for both halves: NaN as soon as one is infinite or NaN.
template <typename Element>
__device__ __forceinline__ void CollectNonFinite(uint32_t x, uint32_t& sum);

template <>
__device__ __forceinline__ void CollectNonFinite<__nv_bfloat16>(uint32_t x,
                                                                uint32_t& sum) {
  asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(sum) : "r"(x), "r"(0u));
}

template <>
__device__ __forceinline__ void CollectNonFinite<__half>(uint32_t x,
                                                         uint32_t& sum) {
  asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(sum) : "r"(x), "r"(0u));
}

// Transposes 4 x 4 words over the four lanes of a quad: lane t's word j becomes
// lane j's word t.
__device__ __forceinline__ void TransposeQuad(uint32_t (&w)[4], int quad_lane) {
  const bool odd = quad_lane & 1;
  const bool upper = quad_lane & 2;
#pragma unroll
  for (int j = 0; j < 4; j += 2) {
    const uint32_t sent = odd ? w[j] : w[j + 1];
    const uint32_t got = __shfl_xor_sync(0xffffffffu, sent, 1);
    (odd ? w[j] : w[j + 1]) = got;
  }
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const uint32_t sent = upper ? w[j] : w[j + 2];
    const uint32_t got = __shfl_xor_sync(0xffffffffu, sent, 2);
    (upper ? w[j] : w[j + 2]) = got;
  }
}

// 16-bit rows in 16-byte pieces. `row` and flag: as for StoreO.
template <int kHeadDimV, typename Element>
__device__ __forceinline__ void StoreOVectorized(
    const TileInfo& info, const float (&o)[kHeadDimV / 2],
    const float (&inverse)[2], int row, int quad_lane, int32_t* repair_flag) {
  uint32_t not_finite = 0;
  // Read once: the compiler must assume that stores change shared memory.
  const int num_rows = info.num_rows;
  const int head_dim_v = info.head_dim_v;
  const int64_t row_stride = info.out_row_stride;
  Element* const first = static_cast<Element*>(info.out);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const bool stored = row + 8 * r < num_rows;
    Element* const out = first + (row + 8 * r) * row_stride;
    uint32_t seen = 0;
#pragma unroll
    for (int k = 0; k < kHeadDimV / 32; ++k) {
      uint32_t w[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int i = 4 * (4 * k + j) + 2 * r;
        w[j] = ptx::pack<Element>(o[i] * inverse[r], o[i + 1] * inverse[r]);
        CollectNonFinite<Element>(w[j], seen);
      }
      TransposeQuad(w, quad_lane);
      const int column = 8 * (4 * k + quad_lane);
      if (stored && column < head_dim_v) {
        *reinterpret_cast<uint4*>(out + column) =
            make_uint4(w[0], w[1], w[2], w[3]);
      }
    }
    if (stored) not_finite |= seen;
  }
  if (not_finite != 0) *repair_flag = 1;
}

// Any type, stride and alignment, element by element.
template <int kHeadDimV, typename Element, typename Out>
__device__ __forceinline__ bool StoreOElementwise(
    const TileInfo& info, const float (&o)[kHeadDimV / 2],
    const float (&inverse)[2], int row, int quad_lane) {
  bool not_finite = false;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (row + 8 * r >= info.num_rows) continue;
    Out* out =
        static_cast<Out*>(info.out) + (row + 8 * r) * info.out_row_stride;
#pragma unroll
    for (int i = 0; i < kHeadDimV / 8; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int column = 8 * i + 2 * quad_lane + e;
        const Out value = static_cast<Out>(o[4 * i + 2 * r + e] * inverse[r]);
        if (column >= info.head_dim_v) continue;
        not_finite |= !isfinite(static_cast<float>(value));
        out[column] = value;
      }
    }
  }
  return not_finite;
}

// `row`: of the tile, this thread's first. O that is not finite may hold 0 *
// NaN from a masked position: the flag asks for the repair kernel.
template <int kHeadDimV, typename Element>
__device__ __forceinline__ void StoreO(const TileInfo& info,
                                       const float (&o)[kHeadDimV / 2],
                                       const float (&inverse)[2], int row,
                                       int quad_lane, int32_t* repair_flag) {
  bool not_finite = false;
  if (info.out_is_fp32) {
    not_finite = StoreOElementwise<kHeadDimV, Element, float>(info, o, inverse,
                                                              row, quad_lane);
  } else if (info.out_is_vectorized) {
    StoreOVectorized<kHeadDimV, Element>(info, o, inverse, row, quad_lane,
                                         repair_flag);
  } else {
    not_finite = StoreOElementwise<kHeadDimV, Element, Element>(
        info, o, inverse, row, quad_lane);
  }
  if (not_finite) *repair_flag = 1;
}

__device__ __forceinline__ void StoreLse(const TileInfo& info,
                                         const float (&lse)[2], int row,
                                         int quad_lane) {
  if (info.lse == nullptr || quad_lane != 0) return;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (row + 8 * r < info.num_rows) info.lse[row + 8 * r] = lse[r];
  }
}

}  // namespace attendant::kernels::sm90
