// Accesses to global memory that others see and that also order memory. PTX ISA
// 9.7.13.5 (atom), 9.7.9.8 (ld), 9.7.9.11 (st).
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

// The same, setting bits.
__device__ __forceinline__ uint32_t atomic_or_acq_rel(uint32_t* address,
                                                      uint32_t bits) {
  uint32_t old;
  asm volatile("atom.acq_rel.gpu.global.or.b32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(address), "r"(bits)
               : "memory");
  return old;
}

// What this thread did or saw before is seen by whoever then loads the value.
__device__ __forceinline__ void store_release(uint32_t* address,
                                              uint32_t value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(value)
               : "memory");
}

// A value that others change; what they did before is then seen.
__device__ __forceinline__ uint32_t load_acquire(const uint32_t* address) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
               : "=r"(value)
               : "l"(address)
               : "memory");
  return value;
}

}  // namespace attendant::kernels::sm90::ptx
