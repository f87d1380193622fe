// Atomics in global memory that also order memory. PTX ISA 9.7.13.5 (atom).
#pragma once

#include <cstdint>

namespace attendant::kernels::sm90::ptx {

// The old value. What this thread did or saw before (a block barrier makes that
// the whole block's) is seen by whoever adds later, on any multiprocessor.
__device__ __forceinline__ uint32_t atomic_add_acq_rel(uint32_t* address,
                                                       uint32_t value) {
  uint32_t old;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(address), "r"(value)
               : "memory");
  return old;
}

}  // namespace attendant::kernels::sm90::ptx
