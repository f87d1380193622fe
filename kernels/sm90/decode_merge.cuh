// Folding partial results. One arithmetic, in registers and through memory, so
// that which block folded what changes no bit.
//
//   (O, m, l): O = sum p V, l = sum p, p = 2^(x - m), m the maximum (log2)
//   merge: m = max(ma, mb), O = Oa 2^(ma - m) + Ob 2^(mb - m), l alike
#pragma once

#include <cstdint>

#include "kernels/sm90/decode_params.h"
#include "kernels/sm90/ptx/math.cuh"

namespace attendant::kernels::sm90 {

struct MergeFactors {
  float a, b;
};

// Updates m and l to the merged ones. A side that saw nothing (m = -inf) weighs
// 0; both: 0 and m stays -inf.
__device__ __forceinline__ MergeFactors Merge(float& m, float& l, float m_b,
                                              float l_b) {
  const float merged = fmaxf(m, m_b);
  const float base = merged == -INFINITY ? 0.0f : merged;
  const MergeFactors factors = {ptx::ex2_approx(m - base),
                                ptx::ex2_approx(m_b - base)};
  l = __fmaf_rn(l_b, factors.b, __fmul_rn(l, factors.a));
  m = merged;
  return factors;
}

__device__ __forceinline__ float MergeValue(float a, float b,
                                            const MergeFactors& factors) {
  return __fmaf_rn(b, factors.b, __fmul_rn(a, factors.a));
}

// Four columns of one row. Nothing seen yet at first.
struct FoldedVector {
  float m = -INFINITY, l = 0.0f;  // log2 units
  float o[4] = {0.0f, 0.0f, 0.0f, 0.0f};

  // This, then `next` (of later keys). Appending what has seen nothing, or to
  // it, changes no bit: + 0 keeps -0 away.
  __device__ __forceinline__ void Append(const FoldedVector& next) {
    const MergeFactors factors = Merge(m, l, next.m, next.l);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      o[e] = MergeValue(o[e], next.o[e], factors) + 0.0f;
    }
  }
};

// Some columns of one row of the warpgroup kernel. As FoldedVector otherwise.
template <int kColumns>
struct FoldedRow {
  float m = -INFINITY, l = 0.0f;
  float o[kColumns] = {};

  __device__ __forceinline__ void Append(const FoldedRow& next) {
    const MergeFactors factors = Merge(m, l, next.m, next.l);
#pragma unroll
    for (int e = 0; e < kColumns; ++e) {
      o[e] = MergeValue(o[e], next.o[e], factors);
    }
  }
};

// What O is multiplied by at the end, and LSE (natural log, without the sink).
struct RowEnd {
  float inverse;
  float lse;
};
__device__ __forceinline__ RowEnd FinishRow(float m, float l, float sink_log2) {
  if (l == 0.0f) return {0.0f, -INFINITY};
  const float with_sink =
      l + (sink_log2 == -INFINITY ? 0.0f : ptx::ex2_approx(sink_log2 - m));
  return {__frcp_rn(with_sink), (m + ptx::lg2_approx(l)) * 0.6931471805599453f};
}

}  // namespace attendant::kernels::sm90
