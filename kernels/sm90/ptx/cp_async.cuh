// Asynchronous copies of 16 bytes a thread. PTX ISA 9.7.9.25 (cp.async) and
// 9.7.13.16 (cp.async.mbarrier.arrive).
#pragma once

#include <cstdint>

namespace attendant::kernels::sm90::ptx {

// The first `bytes` (0..16) from global memory, zeros after them; both
// addresses are multiples of 16. Orders nothing.
__device__ __forceinline__ void cp_async_16(uint32_t smem, const void* global,
                                            uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem),
               "l"(global), "r"(bytes)
               : "memory");
}

// Waits for all copies that this thread began.
__device__ __forceinline__ void cp_async_wait_all() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

// One of the barrier's expected arrivals, once this thread's copies are done.
__device__ __forceinline__ void cp_async_mbarrier_arrive(uint32_t barrier) {
  asm volatile(
      "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier)
      : "memory");
}

}  // namespace attendant::kernels::sm90::ptx
