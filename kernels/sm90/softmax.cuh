// Online softmax of one thread's two rows, in log2 units.
//
//   x = S * scale * log2(e)          (or the modified score)
//   p = 2^(x - r), l += p, O += p V; r: the row's maximum so far
//
// When the maximum rises, l and O are scaled by 2^(r_old - r_new); a warp in
// which it rose nowhere skips that, which changes no bit. (A reference that
// lags behind, up to 2^8, saves 1 % of time but rounds the largest p to 16 bits
// where it would be exactly 1: the error then passes twice the plain one's.)
// The decision is per row, so a row's bits never depend on the rows beside it.
#pragma once

#include <cstdint>

#include "kernels/sm90/ptx/math.cuh"
#include "kernels/sm90/tile_info.cuh"

namespace attendant::kernels::sm90 {

// Scores become log2-units logits: scale, softcap, ALiBi (in this order).
struct ScoreMod {
  float scale_log2;
  float softcap;
  float slope_log2;

  // `distance` = |row + shift - key|.
  __device__ __forceinline__ float operator()(float s, float distance) const {
    float x = s * scale_log2;
    if (softcap > 0) x = Capped(x);
    return x - slope_log2 * distance;
  }

  // cap tanh(x / cap), in log2 units. tanh.approx is too coarse, and 1 - 2 /
  // (1 + e^2y) loses what is left of a small y: there a series, 5e-8 at 0.3.
  __device__ __forceinline__ float Capped(float x) const {
    const float y = x * (kLn2 / softcap);
    const float y2 = y * y;
    const float series =
        x + x * y2 *
                (-1.0f / 3 +
                 y2 * (2.0f / 15 +
                       y2 * (-17.0f / 315 +
                             y2 * (62.0f / 2835 + y2 * (-1382.0f / 155925)))));
    const float e = ptx::ex2_approx(x * (2.0f / softcap));
    const float limit =
        softcap * kLog2E * (1.0f - 2.0f * ptx::rcp_approx(1.0f + e));
    return fabsf(y) < 0.3f ? series : limit;
  }
};

// The two rows of a thread: index 0 is row l / 4, index 1 is row l / 4 + 8.
struct OnlineSoftmax {
  float reference[2];  // r / c, in the units of S; -inf = nothing seen
  float sum[2];        // l, this thread's columns only
  float rescale[2];    // what O must be multiplied by before its next product

  __device__ __forceinline__ void Reset() {
    for (int r = 0; r < 2; ++r) {
      reference[r] = -INFINITY;
      sum[r] = 0.0f;
      rescale[r] = 1.0f;
    }
  }

  // s (in) -> p (out); x = s * c, c > 0.
  template <int kColumns>
  __device__ __forceinline__ void Step(float (&s)[kColumns / 2], float c) {
    float maximum[2] = {s[0], s[2]};
#pragma unroll
    for (int i = 0; i < kColumns / 8; ++i) {
      maximum[0] = fmaxf(maximum[0], fmaxf(s[4 * i], s[4 * i + 1]));
      maximum[1] = fmaxf(maximum[1], fmaxf(s[4 * i + 2], s[4 * i + 3]));
    }
    float offset[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      maximum[r] =
          fmaxf(maximum[r], __shfl_xor_sync(0xffffffffu, maximum[r], 1));
      maximum[r] =
          fmaxf(maximum[r], __shfl_xor_sync(0xffffffffu, maximum[r], 2));
      // NaN (both -inf) compares false: the reference stays -inf.
      const float rise = (maximum[r] - reference[r]) * c;
      const bool moves = rise > 0.0f;
      rescale[r] = moves ? ptx::ex2_approx(-rise) : 1.0f;
      reference[r] = moves ? maximum[r] : reference[r];
      sum[r] *= rescale[r];
      offset[r] = reference[r] == -INFINITY ? 0.0f : -reference[r] * c;
    }
#pragma unroll
    for (int i = 0; i < kColumns / 8; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float& x = s[4 * i + e];
        x = ptx::ex2_approx(fmaf(x, c, offset[e / 2]));
        sum[e / 2] += x;
      }
    }
  }

  __device__ __forceinline__ bool NeedsRescale() const {
    return rescale[0] != 1.0f || rescale[1] != 1.0f;
  }

  template <int kCount>
  __device__ __forceinline__ void Rescale(float (&o)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) o[i] *= rescale[(i / 2) % 2];
  }

  // After the last step: what O is multiplied by, and LSE (natural log, without
  // the sink). A row that saw nothing: 0 and -inf.
  __device__ __forceinline__ void Finish(float c, float sink_log2,
                                         float (&inverse)[2],
                                         float (&lse)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float total = sum[r] + __shfl_xor_sync(0xffffffffu, sum[r], 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      const float reference_log2 = reference[r] * c;
      lse[r] = total == 0.0f ? -INFINITY
                             : (reference_log2 + ptx::lg2_approx(total)) * kLn2;
      const float with_sink =
          total + (sink_log2 == -INFINITY
                       ? 0.0f
                       : ptx::ex2_approx(sink_log2 - reference_log2));
      inverse[r] = total == 0.0f ? 0.0f : ptx::rcp_approx(with_sink);
    }
  }
};

}  // namespace attendant::kernels::sm90
