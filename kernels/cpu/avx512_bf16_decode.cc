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

// Fetches what lies `bytes` behind the line at `from` (maybe behind the end: a
// prefetch never faults). Spread over the arithmetic: some processors drop
// prefetches that come faster than memory answers.
inline void PrefetchAhead(const uint16_t* from, int64_t bytes) {
  if (bytes == 0) return;
  __builtin_prefetch(
      reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(from) + bytes));
}

// About kPrefetchBytes of one head, in whole rows.
int64_t PrefetchDistance(int64_t size, int64_t pitch) {
  return 2 * pitch *
         std::clamp<int64_t>(kPrefetchBytes / (2 * size), 4, kDecodeBlock);
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

// 32 dims from c on of 4 keys and kRows rows of Q; fetches the same dims
// `ahead` bytes from here.
template <int kRows>
ATTENDANT_BF16 inline void ScoreDims(const uint16_t* const* k,
                                     const uint16_t (*q)[kMaxChunks * kWide],
                                     int64_t c, int64_t left, int64_t ahead,
                                     __m512 (*sums)[4]) {
  __m512bh keys[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    keys[i] = AsPairs(LoadChunk(k[i] + c, left));
    PrefetchAhead(k[i] + c, ahead);
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

// 4 keys against kRows rows of Q. The first kUnrolled chunks of a row have
// loads of their own: each strides evenly through K, which is what processors
// foresee.
template <int kRows, int kUnrolled>
ATTENDANT_BF16 inline void ScoreKeys(const DecodeScoresArgs& a,
                                     const uint16_t (*q)[kMaxChunks * kWide],
                                     int first, int64_t ahead) {
  const uint16_t* k[4];
  __m512 sums[kRows][4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    k[i] = static_cast<const uint16_t*>(a.k) +
           std::min(first + i, a.num_keys - 1) * a.k_pitch;
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) sums[r][i] = _mm512_setzero_ps();
  }
#pragma GCC unroll 4
  for (int u = 0; u < kUnrolled; ++u) {
    ScoreDims<kRows>(k, q, u * kWide, kWide, ahead, sums);
  }
  for (int64_t c = kUnrolled * kWide; c < a.head_dim; c += kWide) {
    ScoreDims<kRows>(k, q, c, a.head_dim - c, ahead, sums);
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
  const int64_t ahead = prefetch ? PrefetchDistance(a.head_dim, a.k_pitch) : 0;
  if (a.head_dim >= 4 * kWide) {
    for (int n = 0; n < a.num_keys; n += 4) ScoreKeys<kRows, 4>(a, q, n, ahead);
  } else if (a.head_dim >= 2 * kWide) {
    for (int n = 0; n < a.num_keys; n += 4) ScoreKeys<kRows, 2>(a, q, n, ahead);
  } else {
    for (int n = 0; n < a.num_keys; n += 4) ScoreKeys<kRows, 0>(a, q, n, ahead);
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

// Keys that all slices of O take before the next ones, an even number: few, so
// that V is in the first cache for all slices but the first.
constexpr int kKeysOfSlice = 16;
// Sums of one row, in the order that interleaving leaves.
constexpr int kMaxSums = 256;

// Adds keys [begin, end) to kChunks chunks of 32 dims from `first` on, and
// fetches the same dims `ahead` bytes from here.
template <int kRows, int kChunks, bool kFiniteOnly>
ATTENDANT_BF16 inline void Slice(const DecodeValuesArgs& a,
                                 const uint16_t (*p)[kDecodeBlock],
                                 int64_t first, int begin, int end,
                                 int64_t ahead, float (*sums)[kMaxSums]) {
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
      const int64_t left = a.head_dim_v - first - c * kWide;
      PrefetchAhead(row + c * kWide, ahead);
      PrefetchAhead(row + a.v_pitch + c * kWide, ahead);
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
                                     int64_t ahead, float (*sums)[kMaxSums]) {
  LoadSums<kRows>(a, sums);
  for (int n = 0; n < a.num_keys; n += kKeysOfSlice) {
    const int end = std::min(n + kKeysOfSlice, a.num_keys);
    int64_t c = 0;
    if (a.head_dim_v >= 4 * kWide) {  // loads of their own, as for K
      Slice<kRows, 2, kFiniteOnly>(a, p, 0, n, end, ahead, sums);
      Slice<kRows, 2, kFiniteOnly>(a, p, 2 * kWide, n, end, ahead, sums);
      c = 4 * kWide;
    }
    for (; c + 2 * kWide <= a.head_dim_v; c += 2 * kWide) {
      Slice<kRows, 2, kFiniteOnly>(a, p, c, n, end, ahead, sums);
    }
    for (; c < a.head_dim_v; c += kWide) {
      Slice<kRows, 1, kFiniteOnly>(a, p, c, n, end, ahead, sums);
    }
  }
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
  alignas(64) float sums[kRows][kMaxSums];
  AddValues<kRows, false>(
      a, p, prefetch ? PrefetchDistance(a.head_dim_v, a.v_pitch) : 0, sums);
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
  if (!finite) AddValues<kRows, true>(a, p, 0, sums);
  StoreSums<kRows>(a, sums);
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
