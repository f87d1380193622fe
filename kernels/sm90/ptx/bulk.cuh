// Bulk copies of flat memory by the copy engine: addresses and sizes are
// multiples of 16 bytes. PTX ISA 9.7.9.27.3 (cp.async.bulk), 9.7.9.27.4
// (cp.async.bulk.commit_group, wait_group).
#pragma once

#include <cstdint>

namespace attendant::kernels::sm90::ptx {

// From global memory; completes on `barrier`. Orders nothing.
__device__ __forceinline__ void bulk_load(uint32_t smem, const void* global,
                                          uint32_t bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1], %2, [%3];" ::"r"(smem),
      "l"(global), "r"(bytes), "r"(barrier)
      : "memory");
}

// To a block of the cluster: `target` and `barrier`, its own, are addresses of
// map_to_rank. Orders nothing.
__device__ __forceinline__ void bulk_push(uint32_t target, uint32_t smem,
                                          uint32_t bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
      " [%0], [%1], %2, [%3];" ::"r"(target),
      "r"(smem), "r"(bytes), "r"(barrier)
      : "memory");
}

// To global memory; in this thread's group of copies that bulk_commit ends.
__device__ __forceinline__ void bulk_store(void* global, uint32_t smem,
                                           uint32_t bytes) {
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
          global),
      "r"(smem), "r"(bytes)
      : "memory");
}

__device__ __forceinline__ void bulk_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Until this thread's groups have read their sources.
__device__ __forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

// Orders this thread's ordinary accesses to global memory, and what it has seen
// there, before its later bulk copies.
__device__ __forceinline__ void fence_proxy_async_global() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

}  // namespace attendant::kernels::sm90::ptx
