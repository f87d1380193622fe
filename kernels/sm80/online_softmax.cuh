// The online softmax. Scores are kept in units u: the plain variant's are log2
// units, u = S * scale * log2(e) by one multiply-add within the exponent; the
// general variant's are natural, as the contract's formula leaves them, because
// times log2(e) the lowest floats of a mask would become -inf. With exp_u the
// power function of those units,
//   m = max of u so far,  p = exp_u(u - m),  l = sum of p,  O = sum of p V
// and at the end O / l, LSE = m in natural units + ln l.
//
// m moves with every new maximum, so that the largest p is exactly 1: a row
// that one key dominates then has no rounding error of P at all. (Moving m only
// when p would pass 2^8 saves most rescaling of O, but was seen to exceed twice
// the plain implementation's error.) Where no row of a warp moves, the
// multiplications by 1 are skipped; that changes no bit.
//
// -inf is kept as m of a row that has seen nothing (a finite sentinel would
// swallow very negative logits); 0 stands for it in the subtraction alone.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/sm80/products.cuh"
#include "kernels/sm80/ptx/mma.cuh"
#include "kernels/sm80/traits.cuh"

namespace attendant::kernels::sm80 {

inline constexpr float kLog2E = 1.44269504088896340736f;
inline constexpr float kLn2 = 0.693147180559945309417f;

// exp_u(x - m) of a raw score: the plain variant's still lacks `to_log2`.
template <typename T>
__device__ __forceinline__ float Power(float score, float to_log2,
                                       float minus_m) {
  if constexpr (T::kGeneral) return ptx::ex2((score + minus_m) * kLog2E);
  return ptx::ex2(fmaf(score, to_log2, minus_m));
}

template <typename T>
__device__ __forceinline__ void ResetState(RowState<T>& state) {
#pragma unroll
  for (int f = 0; f < T::kFrags; ++f) {
#pragma unroll
    for (int n = 0; n < T::kHeadDim / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) state.o[f][n][e] = 0.0f;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      state.m[f][half] = -INFINITY;
      state.l[f][half] = 0.0f;
    }
  }
}

// Largest u of the block in row (f, half); NaN scores are passed over here and
// stay visible through p.
template <typename T>
__device__ __forceinline__ float BlockMax(const Scores<T>& scores, int f,
                                          int half, float to_log2) {
  float max = fmaxf(scores.s[f][0][2 * half], scores.s[f][0][2 * half + 1]);
#pragma unroll
  for (int n = 1; n < T::kKeys / 8; ++n) {
    max = fmaxf(max,
                fmaxf(scores.s[f][n][2 * half], scores.s[f][n][2 * half + 1]));
  }
  max = fmaxf(max, __shfl_xor_sync(0xffffffff, max, 1));
  max = fmaxf(max, __shfl_xor_sync(0xffffffff, max, 2));
  return T::kGeneral ? max : max * to_log2;
}

// Moves m where the block demands it, and l and O with it. `to_log2` > 0 turns
// the plain variant's scores into log2 units.
template <typename T>
__device__ __forceinline__ void UpdateMax(const Scores<T>& scores,
                                          float to_log2, RowState<T>& state) {
  float factor[T::kFrags][2];
  bool moved = false;
#pragma unroll
  for (int f = 0; f < T::kFrags; ++f) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float max = BlockMax<T>(scores, f, half, to_log2);
      float& m = state.m[f][half];
      factor[f][half] = 1.0f;
      if (max > m) {
        factor[f][half] = ptx::ex2(T::kGeneral ? (m - max) * kLog2E : m - max);
        m = max;
        moved = true;
      }
      state.l[f][half] *= factor[f][half];
    }
  }
  if (!__any_sync(0xffffffff, moved)) return;
#pragma unroll
  for (int f = 0; f < T::kFrags; ++f) {
#pragma unroll
    for (int n = 0; n < T::kHeadDim / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) state.o[f][n][e] *= factor[f][e / 2];
    }
  }
}

// p of the block, its sums, and O += P V. `v` is the V tile's address plus
// RowMajorOffset.
template <typename T>
__device__ __forceinline__ void AccumulateValues(const Scores<T>& scores,
                                                 float to_log2, uint32_t v,
                                                 RowState<T>& state) {
  using Mma = ptx::Mma<typename T::Element>;
  float minus_m[T::kFrags][2];
#pragma unroll
  for (int f = 0; f < T::kFrags; ++f) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float m = state.m[f][half];
      minus_m[f][half] = m == -INFINITY ? 0.0f : -m;
    }
  }
#pragma unroll
  for (int step = 0; step < T::kKeys / 16; ++step) {
    uint32_t p[T::kFrags][4];
#pragma unroll
    for (int f = 0; f < T::kFrags; ++f) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // columns 8 * (i / 2), row half i % 2
        const float* s = &scores.s[f][2 * step + i / 2][2 * (i % 2)];
        const float p0 = Power<T>(s[0], to_log2, minus_m[f][i % 2]);
        const float p1 = Power<T>(s[1], to_log2, minus_m[f][i % 2]);
        state.l[f][i % 2] += p0;
        state.l[f][i % 2] += p1;
        p[f][i] = Mma::Pack(p0, p1);
      }
    }
    MultiplyPv<T>(p, v + step * 16 * T::kPitch, state);
  }
}

}  // namespace attendant::kernels::sm80
