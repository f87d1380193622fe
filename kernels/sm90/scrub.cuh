// The repair launch's scrubbing of V in shared memory.
#pragma once

#include <cstdint>

namespace attendant::kernels::sm90 {

// Decode: warps 1 to 3 of the producer warpgroup scrub, warp 0 produces.
inline constexpr int kScrubThreads = 96;
inline constexpr int kScrubWarps = 3;
inline constexpr uint32_t kScrubbersBarrier = 9;

// Both halves: 0 instead of what is infinite or NaN.
__device__ __forceinline__ uint32_t ScrubPair(uint32_t pair,
                                              uint32_t exponent) {
  if ((pair & exponent) == exponent) pair &= 0xffff0000u;
  const uint32_t upper = exponent << 16;
  if ((pair & upper) == upper) pair &= 0x0000ffffu;
  return pair;
}

// `bytes` of shared memory, a multiple of 16, by threads 0..kThreads-1.
template <int kThreads = kScrubThreads>
__device__ __forceinline__ void ScrubTile(uint8_t* tile, int bytes,
                                          uint32_t exponent, int thread) {
#pragma unroll 1
  for (int i = thread * 16; i < bytes; i += kThreads * 16) {
    uint4* words = reinterpret_cast<uint4*>(tile + i);
    const uint4 w = *words;
    *words = make_uint4(ScrubPair(w.x, exponent), ScrubPair(w.y, exponent),
                        ScrubPair(w.z, exponent), ScrubPair(w.w, exponent));
  }
}

}  // namespace attendant::kernels::sm90
