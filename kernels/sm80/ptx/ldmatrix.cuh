// ldmatrix: 8x8 matrices of 16-bit elements from shared memory into the
// fragments of mma.sync (PTX ISA, "Warp Level Matrix Instructions: ldmatrix").
#pragma once

#include <cstdint>

namespace attendant::kernels::sm80::ptx {

// Four matrices; lane 8*i + r gives the address of row r of matrix i, aligned
// to 16 bytes. Register i of lane l holds matrix i's row l/4, columns 2*(l%4)
// and the next. All 32 lanes take part. Not ordered after other lanes' stores.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&fragment)[4],
                                            uint32_t shared) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]),
        "=r"(fragment[3])
      : "r"(shared));
}

// The same, each matrix transposed: register i of lane l holds column l/4,
// rows 2*(l%4) and the next.
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&fragment)[4],
                                                  uint32_t shared) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]),
        "=r"(fragment[3])
      : "r"(shared));
}

}  // namespace attendant::kernels::sm80::ptx
