// What both halves of the decode form on vdpbf16ps are built of. Only for files
// that run on such machines.
#pragma once

#include <immintrin.h>

#include <cstdint>

#define ATTENDANT_BF16 \
  __attribute__((      \
      target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")))

namespace attendant::kernels::cpu {

inline constexpr int kWide = 32;  // bf16 numbers in a vector
inline constexpr int kMaxRows = 4;

ATTENDANT_BF16 inline __m512bh AsPairs(__m512i bits) {
  return reinterpret_cast<__m512bh>(bits);
}

// Element i of a row is at 32 * chunk + i; 0 behind the row's end.
ATTENDANT_BF16 inline __m512i LoadChunk(const uint16_t* row, int64_t left) {
  if (left >= kWide) return _mm512_loadu_si512(row);
  return _mm512_maskz_loadu_epi16(
      static_cast<__mmask32>((uint32_t{1} << left) - 1), row);
}

// One line of 64 bytes. Spread over the arithmetic, and in the order of memory:
// processors drop prefetches that come faster than memory answers, and foresee
// lines that follow each other.
inline void Fetch(const char* at) { __builtin_prefetch(at); }

}  // namespace attendant::kernels::cpu
