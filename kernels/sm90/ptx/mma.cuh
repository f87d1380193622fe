// mma.sync and what feeds it: products of one warp, synchronous. PTX ISA
// 9.7.14 (warp level matrix instructions).
//
// Fragments of lane l, m16n8k16:
//   A: a[0] = row l / 4, columns 2 (l % 4) + {0, 1}; a[1] = row + 8; a[2], a[3]
//      = the same at columns + 8; low half = lower column
//   B: b[0] = rows 2 (l % 4) + {0, 1} of column l / 4; b[1] = rows + 8
//   D: d[0, 1] = row l / 4, columns 2 (l % 4) + {0, 1}; d[2, 3] = row + 8
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace attendant::kernels::sm90::ptx {

// Four 8x8 matrices of 16-bit elements; lane l names row l % 8 of matrix l / 8
// and gets columns 2 (l % 4) + {0, 1} of row l / 4 of each.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&fragment)[4],
                                            uint32_t smem) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]),
        "=r"(fragment[3])
      : "r"(smem)
      : "memory");
}

// As ldmatrix_x4, each matrix transposed: the lane gets rows 2 (l % 4) + {0, 1}
// of column l / 4.
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&fragment)[4],
                                                  uint32_t smem) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]),
        "=r"(fragment[3])
      : "r"(smem)
      : "memory");
}

// The 8x8 matrix that the warp holds (row l / 4, columns 2 (l % 4) + {0, 1}),
// transposed among its lanes.
__device__ __forceinline__ uint32_t movmatrix_trans(uint32_t matrix) {
  uint32_t transposed;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;"
      : "=r"(transposed)
      : "r"(matrix));
  return transposed;
}

// d += A B.
template <typename Element>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4],
                                             const uint32_t (&a)[4],
                                             const uint32_t (&b)[2]);

template <>
__device__ __forceinline__ void mma_m16n8k16<__nv_bfloat16>(
    float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <>
__device__ __forceinline__ void mma_m16n8k16<__half>(float (&d)[4],
                                                     const uint32_t (&a)[4],
                                                     const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace attendant::kernels::sm90::ptx
