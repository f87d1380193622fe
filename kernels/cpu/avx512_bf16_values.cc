// Values of the decode form on vdpbf16ps: V is multiplied as it lies in memory,
// two keys of a dim at once.
#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/avx512_bf16.h"
#include "kernels/cpu/avx512_bf16_chunks.h"
#include "kernels/cpu/decode_fetch.h"

namespace attendant::kernels::cpu {
namespace {

// Interleaving two rows leaves the dims of 32 in this order of blocks of 4:
// first vector 0 2 4 6, second 1 3 5 7.
struct Shuffles {
  __m512i low_from_dims, high_from_dims, dims0, dims1;
};
ATTENDANT_BF16 inline Shuffles MakeShuffles() {
  return {
      _mm512_setr_epi32(0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26,
                        27),
      _mm512_setr_epi32(4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30,
                        31),
      _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23),
      _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29,
                        30, 31)};
}

ATTENDANT_BF16 inline __m512i FiniteOnly(__m512i bf16) {
  const __m512i exponent = _mm512_set1_epi16(0x7f80);
  return _mm512_maskz_mov_epi16(
      _mm512_cmpneq_epi16_mask(_mm512_and_si512(bf16, exponent), exponent),
      bf16);
}

// Keys that all slices of O take before the next ones, an even number: few, so
// that V is in the first cache for all slices but the first.
constexpr int kKeysOfSlice = 8;
// Sums of one row, in the order that interleaving leaves.
constexpr int kMaxSums = 256;

// What a slice fetches: for each pair of keys a line for each of its chunks, at
// `at` and `second` bytes behind; the next pair's lie `step` bytes behind.
struct SliceFetch {
  const char* at;
  int64_t second, step;
};

// Adds keys [begin, end) to kChunks chunks of 32 dims from `first` on. kWhole:
// all chunks are whole, and all pairs of keys.
template <int kRows, int kChunks, bool kFiniteOnly, bool kWhole>
ATTENDANT_BF16 __attribute__((always_inline)) inline void AddPairs(
    const DecodeValuesArgs& a, const uint16_t (*p)[kDecodeBlock], int64_t first,
    int begin, int end, SliceFetch fetch, float (*sums)[kMaxSums]) {
  __m512 o[kRows][2 * kChunks];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < 2 * kChunks; ++v) {
      o[r][v] = _mm512_load_ps(sums[r] + first + v * 16);
    }
  }
  const auto* row =
      static_cast<const uint16_t*>(a.v) + begin * a.v_pitch + first;
  for (int n = begin; n < end; n += 2, row += 2 * a.v_pitch) {
    __m512bh values[2 * kChunks];
#pragma GCC unroll 2
    for (int c = 0; c < kChunks; ++c) {
      const int64_t left = kWhole ? kWide : a.head_dim_v - first - c * kWide;
      Fetch(fetch.at + c * 2 * kWide);
      Fetch(fetch.at + fetch.second + c * 2 * kWide);
      __m512i even = LoadChunk(row + c * kWide, left);
      __m512i odd = kWhole || n + 1 < end
                        ? LoadChunk(row + a.v_pitch + c * kWide, left)
                        : _mm512_setzero_si512();
      if (kFiniteOnly) {
        even = FiniteOnly(even);
        odd = FiniteOnly(odd);
      }
      values[2 * c] = AsPairs(_mm512_unpacklo_epi16(even, odd));
      values[2 * c + 1] = AsPairs(_mm512_unpackhi_epi16(even, odd));
    }
    fetch.at += fetch.step;
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      int32_t pair;
      std::memcpy(&pair, p[r] + n, sizeof(pair));
      const __m512bh weights = AsPairs(_mm512_set1_epi32(pair));
#pragma GCC unroll 4
      for (int v = 0; v < 2 * kChunks; ++v) {
        o[r][v] = _mm512_dpbf16_ps(o[r][v], weights, values[v]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < 2 * kChunks; ++v) {
      _mm512_store_ps(sums[r] + first + v * 16, o[r][v]);
    }
  }
}

template <int kRows, int kChunks, bool kFiniteOnly>
ATTENDANT_BF16 inline void Slice(const DecodeValuesArgs& a,
                                 const uint16_t (*p)[kDecodeBlock],
                                 int64_t first, int begin, int end,
                                 const SliceFetch& fetch,
                                 float (*sums)[kMaxSums]) {
  if ((end - begin) % 2 == 0 && first + kChunks * kWide <= a.head_dim_v) {
    AddPairs<kRows, kChunks, kFiniteOnly, true>(a, p, first, begin, end, fetch,
                                                sums);
  } else {
    AddPairs<kRows, kChunks, kFiniteOnly, false>(a, p, first, begin, end, fetch,
                                                 sums);
  }
}

// alpha * O in the sums' order.
template <int kRows>
ATTENDANT_BF16 inline void LoadSums(const DecodeValuesArgs& a,
                                    float (*sums)[kMaxSums]) {
  const Shuffles shuffles = MakeShuffles();
  for (int r = 0; r < kRows; ++r) {
    const __m512 alpha = _mm512_set1_ps(a.alpha[r]);
    for (int64_t c = 0; c < a.head_dim_v; c += kWide) {
      const float* o = a.o + r * a.o_pitch + c;
      const __m512 dims0 = _mm512_mul_ps(_mm512_loadu_ps(o), alpha);
      const __m512 dims1 = a.head_dim_v - c > 16
                               ? _mm512_mul_ps(_mm512_loadu_ps(o + 16), alpha)
                               : _mm512_setzero_ps();
      _mm512_store_ps(sums[r] + c, _mm512_permutex2var_ps(
                                       dims0, shuffles.low_from_dims, dims1));
      _mm512_store_ps(
          sums[r] + c + 16,
          _mm512_permutex2var_ps(dims0, shuffles.high_from_dims, dims1));
    }
  }
}

template <int kRows>
ATTENDANT_BF16 inline void StoreSums(const DecodeValuesArgs& a,
                                     const float (*sums)[kMaxSums]) {
  const Shuffles shuffles = MakeShuffles();
  for (int r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < a.head_dim_v; c += kWide) {
      float* o = a.o + r * a.o_pitch + c;
      const __m512 low = _mm512_load_ps(sums[r] + c);
      const __m512 high = _mm512_load_ps(sums[r] + c + 16);
      _mm512_storeu_ps(o, _mm512_permutex2var_ps(low, shuffles.dims0, high));
      if (a.head_dim_v - c > 16) {
        _mm512_storeu_ps(o + 16,
                         _mm512_permutex2var_ps(low, shuffles.dims1, high));
      }
    }
  }
}

template <int kRows, bool kFiniteOnly>
ATTENDANT_BF16 inline void AddValues(const DecodeValuesArgs& a,
                                     const uint16_t (*p)[kDecodeBlock],
                                     float (*sums)[kMaxSums]) {
  LoadSums<kRows>(a, sums);
  const RowsAhead ahead(a.v, a.head_dim_v, a.v_pitch, 2);
  const int64_t pitch = ahead.pitch_bytes();
  for (int n = 0; n < a.num_keys; n += kKeysOfSlice) {
    const int end = std::min(n + kKeysOfSlice, a.num_keys);
    const char* const at = ahead.Of(n);
    ahead.FetchPages<kKeysOfSlice>(n);
    int64_t c = 0;
    if (a.head_dim_v >= 4 * kWide) {
      // Each half fetches half of the keys, whole rows in order.
      for (int half = 0; half < 2; ++half, c += 2 * kWide) {
        const char* from = at + half * kKeysOfSlice / 2 * pitch;
        Slice<kRows, 2, kFiniteOnly>(a, p, c, n, end, {from, 4 * kWide, pitch},
                                     sums);
      }
    }
    for (; c + 2 * kWide <= a.head_dim_v; c += 2 * kWide) {
      Slice<kRows, 2, kFiniteOnly>(a, p, c, n, end,
                                   {at + 2 * c, pitch, 2 * pitch}, sums);
    }
    for (; c < a.head_dim_v; c += kWide) {
      Slice<kRows, 1, kFiniteOnly>(a, p, c, n, end,
                                   {at + 2 * c, pitch, 2 * pitch}, sums);
    }
  }
}

template <int kRows>
ATTENDANT_BF16 bool ValuesOf(const DecodeValuesArgs& a) {
  alignas(64) uint16_t p[kRows][kDecodeBlock];
  for (int r = 0; r < kRows; ++r) {
    for (int n = 0; n < a.num_keys; n += 16) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(p[r] + n),
                         reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(
                             _mm512_loadu_ps(a.p + r * kDecodeBlock + n))));
    }
  }
  alignas(64) float sums[kRows][kMaxSums];
  AddValues<kRows, false>(a, p, sums);
  __m512 poison = _mm512_setzero_ps();
  for (int r = 0; r < kRows; ++r) {
    const int64_t stored = (a.head_dim_v + kWide - 1) / kWide * kWide;
    for (int64_t c = 0; c < stored; c += 16) {
      poison = _mm512_fmadd_ps(_mm512_load_ps(sums[r] + c), _mm512_setzero_ps(),
                               poison);
    }
  }
  const bool finite =
      _mm512_cmp_ps_mask(poison, _mm512_setzero_ps(), _CMP_NEQ_UQ) == 0;
  if (!finite) AddValues<kRows, true>(a, p, sums);
  StoreSums<kRows>(a, sums);
  return finite;
}

}  // namespace

bool Avx512Bf16DecodeValues(const DecodeValuesArgs& args) {
  DecodeValuesArgs a = args;
  bool finite = true;
  while (a.rows > 0) {
    const int rows = std::min(a.rows, kMaxRows);
    switch (rows) {
      case 1:
        finite &= ValuesOf<1>(a);
        break;
      case 2:
        finite &= ValuesOf<2>(a);
        break;
      case 3:
        finite &= ValuesOf<3>(a);
        break;
      default:
        finite &= ValuesOf<4>(a);
    }
    a.rows -= rows;
    a.p += rows * kDecodeBlock;
    a.alpha += rows;
    a.o += rows * a.o_pitch;
  }
  return finite;
}

}  // namespace attendant::kernels::cpu
