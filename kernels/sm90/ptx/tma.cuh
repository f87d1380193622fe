// Bulk tensor copies (TMA). PTX ISA 9.7.9.27 (cp.async.bulk.tensor) and
// 9.7.13.4 (fence.proxy.tensormap).
#pragma once

#include <cuda.h>

#include <cstdint>

namespace attendant::kernels::sm90::ptx {

// L2 eviction policies as createpolicy encodes them.
inline constexpr uint64_t kEvictFirst = 0x12F0000000000000ull;
inline constexpr uint64_t kEvictLast = 0x14F0000000000000ull;

// One thread starts the copy of the box at (x, row, head, batch) into shared
// memory; its bytes (the whole box, also where zeros are filled in for what
// lies outside) complete on `barrier`. Orders nothing.
__device__ __forceinline__ void tma_load_4d(uint32_t smem,
                                            const CUtensorMap* map,
                                            uint32_t barrier, int x, int row,
                                            int head, int batch,
                                            uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile"
      ".mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(smem),
      "l"(map), "r"(barrier), "r"(x), "r"(row), "r"(head), "r"(batch),
      "l"(policy)
      : "memory");
}

// As tma_load_4d, called by a whole warp of which one lane starts the copy: the
// operands stay in uniform registers, where a branch on the lane would move
// each there by a loop.
__device__ __forceinline__ void tma_load_4d_elect(uint32_t smem,
                                                  const CUtensorMap* map,
                                                  uint32_t barrier, int x,
                                                  int row, int head, int batch,
                                                  uint64_t policy) {
  asm volatile(
      "{\n"
      ".reg .pred elected;\n"
      "elect.sync _|elected, 0xffffffff;\n"
      "@elected cp.async.bulk.tensor.4d.shared::cluster.global.tile"
      ".mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4, %5, %6}], [%2], %7;\n"
      "}" ::"r"(smem),
      "l"(map), "r"(barrier), "r"(x), "r"(row), "r"(head), "r"(batch),
      "l"(policy)
      : "memory");
}

__device__ __forceinline__ void prefetch_tensormap(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Before the first copy through a map that lies in global memory.
__device__ __forceinline__ void fence_tensormap_acquire(
    const CUtensorMap* map) {
  asm volatile(
      "fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map)
      : "memory");
}

}  // namespace attendant::kernels::sm90::ptx
