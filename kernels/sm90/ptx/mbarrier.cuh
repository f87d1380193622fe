// mbarrier: transaction barriers in shared memory. PTX ISA 9.7.13.15.
// Phases alternate parity 0, 1, 0, ...; a fresh barrier is in phase 0, so
// waiting for parity 1 returns at once.
#pragma once

#include <cstdint>

namespace attendant::kernels::sm90::ptx {

// The 32-bit shared-window address that every wrapper here takes.
__device__ __forceinline__ uint32_t smem_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// One thread, before anyone uses it; fence_mbarrier_init and a block barrier
// make it visible.
__device__ __forceinline__ void mbarrier_init(uint32_t barrier,
                                              uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier),
               "r"(arrivals));
}

__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Release: this thread's earlier accesses are seen by who then waits. Does not
// order ordinary accesses against the copy engine (see fence_proxy_async).
__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier)
               : "memory");
}

// An arrival that also announces `bytes` of bulk copies to come.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint32_t barrier,
                                                          uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
      "r"(bytes)
      : "memory");
}

// Blocks until the phase of `parity` is complete. Acquire.
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier,
                                              uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "wait:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra wait;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Never arrives: `value` is a sum of exponentials, so not below zero. Tells the
// assembler that what follows may depend on `value`, which keeps it from
// hoisting a wgmma wait above the exponentials.
__device__ __forceinline__ void mbarrier_arrive_if_negative(uint32_t barrier,
                                                            float value) {
  asm volatile(
      "{\n"
      ".reg .pred negative;\n"
      "setp.lt.f32 negative, %1, 0f00000000;\n"
      "@negative mbarrier.arrive.shared::cta.b64 _, [%0];\n"
      "}" ::"r"(barrier),
      "f"(value)
      : "memory");
}

// Orders this thread's ordinary shared-memory accesses before later accesses by
// the copy engine and the tensor cores.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Named barriers 1..15 of the block, of `threads` threads: sync waits for all,
// arrive goes on.
__device__ __forceinline__ void named_barrier_sync(uint32_t id,
                                                   uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ void named_barrier_arrive(uint32_t id,
                                                     uint32_t threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace attendant::kernels::sm90::ptx
