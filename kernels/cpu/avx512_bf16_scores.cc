// Scores of the decode form on vdpbf16ps: K is multiplied as it lies in memory,
// two dims of a key at once.
#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/avx512_bf16.h"
#include "kernels/cpu/avx512_bf16_chunks.h"
#include "kernels/cpu/decode_fetch.h"

namespace attendant::kernels::cpu {
namespace {

constexpr int kMaxChunks = 256 / kWide;

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

using QueryRows = const uint16_t (*)[kMaxChunks * kWide];

// 32 dims from c on of 4 keys and kRows rows of Q.
template <int kRows>
ATTENDANT_BF16 inline void ScoreDims(const uint16_t* const* k,
                                     const char* const* fetched, QueryRows q,
                                     int64_t c, int64_t left,
                                     __m512 (*sums)[4]) {
  __m512bh keys[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    keys[i] = AsPairs(LoadChunk(k[i] + c, left));
    Fetch(fetched[i] + 2 * c);
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

// 4 keys of any size, side by side.
template <int kRows>
ATTENDANT_BF16 inline void ScoreKeys(const DecodeScoresArgs& a, QueryRows q,
                                     int first, const RowsAhead& ahead) {
  const uint16_t* k[4];
  const char* fetched[4];
  __m512 sums[kRows][4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    k[i] = static_cast<const uint16_t*>(a.k) +
           std::min(first + i, a.num_keys - 1) * a.k_pitch;
    fetched[i] = ahead.Of(first + i);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) sums[r][i] = _mm512_setzero_ps();
  }
  for (int64_t c = 0; c < a.head_dim; c += kWide) {
    ScoreDims<kRows>(k, fetched, q, c, a.head_dim - c, sums);
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    StoreSums(sums[r], a.scale, a.s + r * kDecodeBlock + first);
  }
}

// Blocks 0 + 2 and 1 + 3, of 128 bits, of a and then of b.
ATTENDANT_BF16 inline __m512 FoldBlocks(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44),
                       _mm512_shuffle_f32x4(a, b, 0xee));
}

// Sums of the four blocks of 128 bits of each of 4 vectors, one for each block.
ATTENDANT_BF16 inline __m512 SumsOfBlocks(const __m512* v) {
  const __m512 low = FoldBlocks(v[0], v[1]);
  const __m512 high = FoldBlocks(v[2], v[3]);
  return _mm512_add_ps(_mm512_shuffle_f32x4(low, high, 0x88),
                       _mm512_shuffle_f32x4(low, high, 0xdd));
}

// The same for keys of kChunks chunks, Q in registers: one key after the other,
// so that K is read line by line.
template <int kRows, int kChunks>
ATTENDANT_BF16 void ScoresInOrder(const DecodeScoresArgs& a, QueryRows q,
                                  const RowsAhead& ahead) {
  __m512bh rows[kRows][kChunks];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < kChunks; ++c) {
      rows[r][c] = AsPairs(_mm512_load_si512(q[r] + c * kWide));
    }
  }
  const __m512i by_row =
      _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512 scale = _mm512_set1_ps(a.scale);
  const auto* k = static_cast<const uint16_t*>(a.k);
  for (int n = 0; n < a.num_keys; n += 4) {
    const char* fetched = ahead.Of(n);
    ahead.FetchPages<4>(n);
    __m512 of_key[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      __m512 sums[4] = {};
#pragma GCC unroll 4
      for (int c = 0; c < kChunks; ++c) {
        const __m512bh key = AsPairs(_mm512_loadu_si512(k + c * kWide));
        Fetch(fetched + c * 2 * kWide);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          sums[r] = _mm512_dpbf16_ps(sums[r], rows[r][c], key);
        }
      }
      of_key[i] = Fold(Fold(sums[0], sums[2]), Fold(sums[1], sums[3]));
      if (n + i + 1 < a.num_keys) k += a.k_pitch;
      fetched += ahead.pitch_bytes();
    }
    const __m512 s = _mm512_permutexvar_ps(
        by_row, _mm512_mul_ps(SumsOfBlocks(of_key), scale));
    float* const to = a.s + n;
    _mm_storeu_ps(to, _mm512_castps512_ps128(s));
    if (kRows > 1) {
      _mm_storeu_ps(to + kDecodeBlock, _mm512_extractf32x4_ps(s, 1));
    }
    if (kRows > 2) {
      _mm_storeu_ps(to + 2 * kDecodeBlock, _mm512_extractf32x4_ps(s, 2));
    }
    if (kRows > 3) {
      _mm_storeu_ps(to + 3 * kDecodeBlock, _mm512_extractf32x4_ps(s, 3));
    }
  }
}

template <int kRows>
ATTENDANT_BF16 void ScoresOf(const DecodeScoresArgs& a) {
  // Q was widened from bf16, so this is exact.
  alignas(64) uint16_t q[kRows][kMaxChunks * kWide] = {};
  for (int r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < a.head_dim; c += 16) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(q[r] + c),
                         reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(
                             _mm512_loadu_ps(a.q + r * a.q_pitch + c))));
    }
  }
  const RowsAhead ahead(a.k, a.head_dim, a.k_pitch, 2);
  if (a.head_dim == 4 * kWide) return ScoresInOrder<kRows, 4>(a, q, ahead);
  if (a.head_dim == 2 * kWide) return ScoresInOrder<kRows, 2>(a, q, ahead);
  for (int n = 0; n < a.num_keys; n += 4) {
    ahead.FetchPages<4>(n);
    ScoreKeys<kRows>(a, q, n, ahead);
  }
}

}  // namespace

void Avx512Bf16DecodeScores(const DecodeScoresArgs& args) {
  DecodeScoresArgs a = args;
  while (a.rows > 0) {
    const int rows = std::min(a.rows, kMaxRows);
    switch (rows) {
      case 1:
        ScoresOf<1>(a);
        break;
      case 2:
        ScoresOf<2>(a);
        break;
      case 3:
        ScoresOf<3>(a);
        break;
      default:
        ScoresOf<4>(a);
    }
    a.rows -= rows;
    a.q += rows * a.q_pitch;
    a.s += rows * kDecodeBlock;
  }
}

}  // namespace attendant::kernels::cpu
