// Clusters: blocks that run at the same time and read each other's shared
// memory. PTX ISA 9.7.13.4 (barrier.cluster), 9.7.9.8 (ld), 9.7.9.22 (mapa).
#pragma once

#include <cstdint>

namespace attendant::kernels::sm90::ptx {

// This block's number within its cluster.
__device__ __forceinline__ int cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

// The block's number, read anew: what is derived from it need not stay in
// registers until then.
__device__ __forceinline__ int block_index_again() {
  uint32_t index;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
  return static_cast<int>(index);
}

// All threads of the cluster that have not ended; what they wrote before is
// seen after. Called by whole warps.
__device__ __forceinline__ void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

// The same, but orders no memory.
__device__ __forceinline__ void cluster_sync_relaxed() {
  asm volatile(
      "barrier.cluster.arrive.relaxed.aligned;\n"
      "barrier.cluster.wait.aligned;" ::
          : "memory");
}

// The address of what lies at `smem` here, in the cluster's block `rank`.
__device__ __forceinline__ uint32_t map_to_rank(uint32_t smem, int rank) {
  uint32_t mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(mapped)
      : "r"(smem), "r"(rank));
  return mapped;
}

// From an address of map_to_rank.
__device__ __forceinline__ float4 load_cluster_16(uint32_t address) {
  float4 x;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "r"(address)
               : "memory");
  return x;
}
__device__ __forceinline__ float2 load_cluster_8(uint32_t address) {
  float2 x;
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
               : "=f"(x.x), "=f"(x.y)
               : "r"(address)
               : "memory");
  return x;
}

}  // namespace attendant::kernels::sm90::ptx
