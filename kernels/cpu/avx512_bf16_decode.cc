// The decode form on vdpbf16ps: K and V are multiplied as they lie in memory,
// two dims of a key (scores) or two keys of a dim (values) at once.
#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/avx512_bf16.h"

#define ATTENDANT_BF16 \
  __attribute__((      \
      target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")))

namespace attendant::kernels::cpu {
namespace {

constexpr int kWide = 32;  // bf16 numbers in a vector
constexpr int kMaxRows = 4;
constexpr int kMaxChunks = 256 / kWide;
constexpr int64_t kPrefetchBytes = 8192;

ATTENDANT_BF16 inline __m512bh AsPairs(__m512i bits) {
  return reinterpret_cast<__m512bh>(bits);
}

// Element i of a row is at 32 * chunk + i; 0 behind the row's end.
ATTENDANT_BF16 inline __m512i LoadChunk(const uint16_t* row, int64_t left) {
  if (left >= kWide) return _mm512_loadu_si512(row);
  return _mm512_maskz_loadu_epi16(
      static_cast<__mmask32>((uint32_t{1} << left) - 1), row);
}

// Rows behind the end may be named: a prefetch never faults.
inline void PrefetchRow(const uint16_t* from, int64_t rows, int64_t pitch,
                        int64_t size) {
  const uintptr_t row = reinterpret_cast<uintptr_t>(from) + rows * pitch * 2;
  for (int64_t c = 0; c < size * 2; c += 64) {
    __builtin_prefetch(reinterpret_cast<const void*>(row + c));
  }
}

int64_t PrefetchKeys(int64_t size) {
  return std::clamp<int64_t>(kPrefetchBytes / (2 * size), 4, kDecodeBlock);
}

// [a, b] -> sums of pairs of lanes in each block of 128 bits, side by side.
ATTENDANT_BF16 inline __m512 Fold(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
}

// to[i] = scale * (sum of the lanes of v[i]) for four vectors.
ATTENDANT_BF16 inline void StoreSums(const __m512* v, float scale, float* to) {
  const __m512 sums = Fold(Fold(v[0], v[2]), Fold(v[1], v[3]));
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(sums),
                                    _mm512_extractf32x8_ps(sums, 1));
  const __m128 quarter =
      _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  _mm_storeu_ps(to, _mm_mul_ps(quarter, _mm_set1_ps(scale)));
}

// 4 keys against kRows rows of Q.
template <int kRows>
ATTENDANT_BF16 inline void ScoreKeys(const DecodeScoresArgs& a,
                                     const uint16_t (*q)[kMaxChunks * kWide],
                                     int first) {
  const uint16_t* k[4];
  for (int i = 0; i < 4; ++i) {
    k[i] = static_cast<const uint16_t*>(a.k) +
           std::min(first + i, a.num_keys - 1) * a.k_pitch;
  }
  __m512 sums[kRows][4];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) sums[r][i] = _mm512_setzero_ps();
  }
  for (int64_t c = 0; c < a.head_dim; c += kWide) {
    __m512bh keys[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      keys[i] = AsPairs(LoadChunk(k[i] + c, a.head_dim - c));
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m512bh row = AsPairs(_mm512_load_si512(q[r] + c));
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        sums[r][i] = _mm512_dpbf16_ps(sums[r][i], row, keys[i]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    StoreSums(sums[r], a.scale, a.s + r * kDecodeBlock + first);
  }
}

template <int kRows>
ATTENDANT_BF16 void ScoresOf(const DecodeScoresArgs& a, bool prefetch) {
  // Q was widened from bf16, so this is exact.
  alignas(64) uint16_t q[kRows][kMaxChunks * kWide] = {};
  for (int r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < a.head_dim; c += 16) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(q[r] + c),
                         reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(
                             _mm512_loadu_ps(a.q + r * a.q_pitch + c))));
    }
  }
  const auto* k = static_cast<const uint16_t*>(a.k);
  const int64_t ahead = PrefetchKeys(a.head_dim);
  for (int n = 0; n < a.num_keys; n += 4) {
    for (int i = 0; prefetch && i < 4; ++i) {
      PrefetchRow(k, n + i + ahead, a.k_pitch, a.head_dim);
    }
    ScoreKeys<kRows>(a, q, n);
  }
}

void Scores(const DecodeScoresArgs& args) {
  DecodeScoresArgs a = args;
  bool prefetch = true;
  while (a.rows > 0) {
    const int rows = std::min(a.rows, kMaxRows);
    switch (rows) {
      case 1:
        ScoresOf<1>(a, prefetch);
        break;
      case 2:
        ScoresOf<2>(a, prefetch);
        break;
      case 3:
        ScoresOf<3>(a, prefetch);
        break;
      default:
        ScoresOf<4>(a, prefetch);
    }
    prefetch = false;
    a.rows -= rows;
    a.q += rows * a.q_pitch;
    a.s += rows * kDecodeBlock;
  }
}

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

// kRows rows of O, kChunks chunks of 32 dims from `first` on. False, with O
// unchanged, if the result is not finite (unless V is made finite).
template <int kRows, int kChunks, bool kFiniteOnly>
ATTENDANT_BF16 inline bool Slice(const DecodeValuesArgs& a,
                                 const uint16_t (*p)[kDecodeBlock],
                                 int64_t first, bool prefetch) {
  const Shuffles shuffles = MakeShuffles();
  __m512 sums[kRows][2 * kChunks];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const __m512 alpha = _mm512_set1_ps(a.alpha[r]);
#pragma GCC unroll 2
    for (int c = 0; c < kChunks; ++c) {
      const float* o = a.o + r * a.o_pitch + first + c * kWide;
      const bool both = a.head_dim_v - first - c * kWide > 16;
      const __m512 dims0 = _mm512_mul_ps(_mm512_loadu_ps(o), alpha);
      const __m512 dims1 = both ? _mm512_mul_ps(_mm512_loadu_ps(o + 16), alpha)
                                : _mm512_setzero_ps();
      sums[r][2 * c] =
          _mm512_permutex2var_ps(dims0, shuffles.low_from_dims, dims1);
      sums[r][2 * c + 1] =
          _mm512_permutex2var_ps(dims0, shuffles.high_from_dims, dims1);
    }
  }
  const auto* row = static_cast<const uint16_t*>(a.v) + first;
  const int64_t ahead = PrefetchKeys(a.head_dim_v);
  for (int n = 0; n < a.num_keys; n += 2, row += 2 * a.v_pitch) {
    if (prefetch) {
      PrefetchRow(row, ahead, a.v_pitch, a.head_dim_v);
      PrefetchRow(row, ahead + 1, a.v_pitch, a.head_dim_v);
    }
    __m512bh values[2 * kChunks];
#pragma GCC unroll 2
    for (int c = 0; c < kChunks; ++c) {
      const int64_t left = a.head_dim_v - first - c * kWide;
      __m512i even = LoadChunk(row + c * kWide, left);
      __m512i odd = n + 1 < a.num_keys
                        ? LoadChunk(row + a.v_pitch + c * kWide, left)
                        : _mm512_setzero_si512();
      if (kFiniteOnly) {
        even = FiniteOnly(even);
        odd = FiniteOnly(odd);
      }
      values[2 * c] = AsPairs(_mm512_unpacklo_epi16(even, odd));
      values[2 * c + 1] = AsPairs(_mm512_unpackhi_epi16(even, odd));
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      int32_t pair;
      std::memcpy(&pair, p[r] + n, sizeof(pair));
      const __m512bh weights = AsPairs(_mm512_set1_epi32(pair));
#pragma GCC unroll 4
      for (int v = 0; v < 2 * kChunks; ++v) {
        sums[r][v] = _mm512_dpbf16_ps(sums[r][v], weights, values[v]);
      }
    }
  }
  if (!kFiniteOnly) {
    __m512 poison = _mm512_setzero_ps();
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < 2 * kChunks; ++v) {
        poison = _mm512_fmadd_ps(sums[r][v], _mm512_setzero_ps(), poison);
      }
    }
    if (_mm512_cmp_ps_mask(poison, _mm512_setzero_ps(), _CMP_NEQ_UQ) != 0) {
      return false;
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int c = 0; c < kChunks; ++c) {
      float* o = a.o + r * a.o_pitch + first + c * kWide;
      const __m512 low = sums[r][2 * c], high = sums[r][2 * c + 1];
      _mm512_storeu_ps(o, _mm512_permutex2var_ps(low, shuffles.dims0, high));
      if (a.head_dim_v - first - c * kWide > 16) {
        _mm512_storeu_ps(o + 16,
                         _mm512_permutex2var_ps(low, shuffles.dims1, high));
      }
    }
  }
  return true;
}

template <int kRows, int kChunks>
ATTENDANT_BF16 inline bool SliceOrFinite(const DecodeValuesArgs& a,
                                         const uint16_t (*p)[kDecodeBlock],
                                         int64_t first, bool prefetch) {
  if (Slice<kRows, kChunks, false>(a, p, first, prefetch)) return true;
  Slice<kRows, kChunks, true>(a, p, first, false);
  return false;
}

template <int kRows>
ATTENDANT_BF16 bool ValuesOf(const DecodeValuesArgs& a, bool prefetch) {
  alignas(64) uint16_t p[kRows][kDecodeBlock];
  for (int r = 0; r < kRows; ++r) {
    for (int n = 0; n < a.num_keys; n += 16) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(p[r] + n),
                         reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(
                             _mm512_loadu_ps(a.p + r * kDecodeBlock + n))));
    }
  }
  bool finite = true;
  int64_t c = 0;
  for (; c + 2 * kWide <= a.head_dim_v; c += 2 * kWide) {
    finite &= SliceOrFinite<kRows, 2>(a, p, c, prefetch && c == 0);
  }
  for (; c < a.head_dim_v; c += kWide) {
    finite &= SliceOrFinite<kRows, 1>(a, p, c, prefetch && c == 0);
  }
  return finite;
}

bool Values(const DecodeValuesArgs& args) {
  DecodeValuesArgs a = args;
  bool finite = true, prefetch = true;
  while (a.rows > 0) {
    const int rows = std::min(a.rows, kMaxRows);
    switch (rows) {
      case 1:
        finite &= ValuesOf<1>(a, prefetch);
        break;
      case 2:
        finite &= ValuesOf<2>(a, prefetch);
        break;
      case 3:
        finite &= ValuesOf<3>(a, prefetch);
        break;
      default:
        finite &= ValuesOf<4>(a, prefetch);
    }
    prefetch = false;
    a.rows -= rows;
    a.p += rows * kDecodeBlock;
    a.alpha += rows;
    a.o += rows * a.o_pitch;
  }
  return finite;
}

}  // namespace

DecodeKernels Avx512Bf16DecodeKernels(const DecodeKernels& avx3) {
  DecodeKernels kernels = avx3;
  kernels.scores = Scores;
  kernels.values = Values;
  return kernels;
}

}  // namespace attendant::kernels::cpu
