// mma.sync m16n8k16 with fp32 accumulators (PTX ISA, "Matrix multiply-
// accumulate operation using mma instruction"), and what feeds it.
//
// Lane l, g = l / 4, t = l % 4. A (16 x 16, row-major): register 0 holds row g,
// columns 2t, 2t+1; 1 the same of row g + 8; 2 and 3 the same at columns + 8.
// B (16 x 8): register 0 holds rows 2t, 2t+1 of column g; 1 rows + 8.
// C (16 x 8): 0 and 1 hold row g, columns 2t, 2t+1; 2 and 3 row g + 8.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace attendant::kernels::sm80::ptx {

template <typename Element>
struct Mma;

template <>
struct Mma<__nv_bfloat16> {
  // d += a * b.
  static __device__ __forceinline__ void m16n8k16(float (&d)[4],
                                                  const uint32_t (&a)[4],
                                                  uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  // Two floats to one register, `low` in the low half, to nearest even.
  static __device__ __forceinline__ uint32_t Pack(float low, float high) {
    uint32_t packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
  }
};

template <>
struct Mma<__half> {
  static __device__ __forceinline__ void m16n8k16(float (&d)[4],
                                                  const uint32_t (&a)[4],
                                                  uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  static __device__ __forceinline__ uint32_t Pack(float low, float high) {
    uint32_t packed;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
  }
};

// 2^x, relative error 2^-22; 0 for -inf, subnormal results flushed to 0.
__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace attendant::kernels::sm80::ptx
