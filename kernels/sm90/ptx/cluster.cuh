// Clusters: blocks that run at the same time and reach each other's shared
// memory. PTX ISA 9.7.13.4 (barrier.cluster), 9.7.9.22 (mapa).
#pragma once

#include <cstdint>

namespace attendant::kernels::sm90::ptx {

// This block's number within its cluster.
__device__ __forceinline__ int cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

// All threads of the cluster that have not ended, in two steps; neither orders
// memory. Called by whole warps.
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}

// The address of what lies at `smem` here, in the cluster's block `rank`.
__device__ __forceinline__ uint32_t map_to_rank(uint32_t smem, int rank) {
  uint32_t mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(mapped)
      : "r"(smem), "r"(rank));
  return mapped;
}

}  // namespace attendant::kernels::sm90::ptx
