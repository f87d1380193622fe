// The two matrix products of a block: S = Q K^T and O += P V.
#pragma once

#include <cstdint>

#include "kernels/sm80/ptx/ldmatrix.cuh"
#include "kernels/sm80/ptx/mma.cuh"
#include "kernels/sm80/traits.cuh"

namespace attendant::kernels::sm80 {

// Where a lane's ldmatrix rows lie in a swizzled tile (see copy.cuh). The tile
// starts on a multiple of 128 bytes, so chunk bits are flipped by XOR.
//
// As operand A (Q) and as transposed B (V): lane l gives row l % 16 of the
// 16-row step, and chunk l / 16 of the 16-element step.
__device__ __forceinline__ uint32_t RowMajorOffset(int lane, int pitch) {
  return (lane % 16) * pitch + (((lane / 16) ^ (lane % 8)) * 16);
}
// As operand B (K): lane l gives row l % 8 of matrix l / 8; matrices are
// (rows 0-7, chunk 0), (0-7, 1), (8-15, 0), (8-15, 1).
__device__ __forceinline__ uint32_t ColumnMajorOffset(int lane, int pitch) {
  return ((lane / 16) * 8 + lane % 8) * pitch +
         ((((lane / 8) % 2) ^ (lane % 8)) * 16);
}
// Of the 16-element step `step` along the row, from such an offset's address.
__device__ __forceinline__ uint32_t AtStep(uint32_t address, int step) {
  return (address ^ ((step % 4) * 32)) + (step / 4) * 128;
}

// S of this warp's rows and one block of keys. `q` is the address of the warp's
// first row plus RowMajorOffset, `k` the K tile's plus ColumnMajorOffset.
template <typename T>
__device__ __forceinline__ void MultiplyQk(uint32_t q, uint32_t k,
                                           Scores<T>& scores) {
#pragma unroll
  for (int f = 0; f < T::kFrags; ++f) {
#pragma unroll
    for (int n = 0; n < T::kKeys / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) scores.s[f][n][e] = 0.0f;
    }
  }
#pragma unroll
  for (int step = 0; step < T::kHeadDim / 16; ++step) {
    uint32_t a[T::kFrags][4];
#pragma unroll
    for (int f = 0; f < T::kFrags; ++f) {
      ptx::ldmatrix_x4(a[f], AtStep(q, step) + f * 16 * T::kPitch);
    }
#pragma unroll
    for (int n = 0; n < T::kKeys / 16; ++n) {
      uint32_t b[4];
      ptx::ldmatrix_x4(b, AtStep(k, step) + n * 16 * T::kPitch);
#pragma unroll
      for (int f = 0; f < T::kFrags; ++f) {
        ptx::Mma<typename T::Element>::m16n8k16(scores.s[f][2 * n], a[f], b[0],
                                                b[1]);
        ptx::Mma<typename T::Element>::m16n8k16(scores.s[f][2 * n + 1], a[f],
                                                b[2], b[3]);
      }
    }
  }
}

// O += P V for 16 keys: `p` is P as operand A, `v` the address of the step's
// first row plus RowMajorOffset.
template <typename T>
__device__ __forceinline__ void MultiplyPv(const uint32_t (&p)[T::kFrags][4],
                                           uint32_t v, RowState<T>& state) {
#pragma unroll
  for (int n = 0; n < T::kHeadDim / 16; ++n) {
    uint32_t b[4];
    ptx::ldmatrix_x4_trans(b, AtStep(v, n));
#pragma unroll
    for (int f = 0; f < T::kFrags; ++f) {
      ptx::Mma<typename T::Element>::m16n8k16(state.o[f][2 * n], p[f], b[0],
                                              b[1]);
      ptx::Mma<typename T::Element>::m16n8k16(state.o[f][2 * n + 1], p[f], b[2],
                                              b[3]);
    }
  }
}

}  // namespace attendant::kernels::sm80
