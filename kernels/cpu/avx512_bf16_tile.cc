// The tile form on vdpbf16ps: pairs of dims (scores) or of keys (values).
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/cpu/avx512_bf16.h"

#define ATTENDANT_BF16 \
  __attribute__((      \
      target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")))

namespace attendant::kernels::cpu {
namespace {

constexpr int kLanes = 16;
constexpr int kUnroll = 8;

// Two bf16 numbers side by side.
ATTENDANT_BF16 inline __m512bh BroadcastPair(const uint16_t* pair) {
  int32_t bits;
  std::memcpy(&bits, pair, sizeof(bits));
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(bits));
}

ATTENDANT_BF16 inline __m512bh LoadPairs(const uint16_t* pairs) {
  return reinterpret_cast<__m512bh>(_mm512_loadu_si512(pairs));
}

template <int kVecs>
ATTENDANT_BF16 inline void ScoreKeys(const ScoresArgs& a, int first,
                                     __m512* max) {
  const uint16_t* k[kUnroll];
  for (int i = 0; i < kUnroll; ++i) {
    k[i] = static_cast<const uint16_t*>(a.k) +
           std::min(first + i, a.num_keys - 1) * a.k_pitch;
  }
  __m512 sums[kUnroll][kVecs];
#pragma GCC unroll 8
  for (int i = 0; i < kUnroll; ++i) {
#pragma GCC unroll 3
    for (int v = 0; v < kVecs; ++v) sums[i][v] = _mm512_setzero_ps();
  }
  const uint16_t* q = static_cast<const uint16_t*>(a.q);
  for (int64_t c = 0; c < a.head_dim; c += 2) {
    __m512bh rows[kVecs];
#pragma GCC unroll 3
    for (int v = 0; v < kVecs; ++v) rows[v] = LoadPairs(q + v * 2 * kLanes);
    q += kVecs * 2 * kLanes;
#pragma GCC unroll 8
    for (int i = 0; i < kUnroll; ++i) {
      const __m512bh key = BroadcastPair(k[i] + c);
#pragma GCC unroll 3
      for (int v = 0; v < kVecs; ++v) {
        sums[i][v] = _mm512_dpbf16_ps(sums[i][v], key, rows[v]);
      }
    }
  }
  const __m512 scale = _mm512_set1_ps(a.scale);
  float* s = a.s + first * kVecs * kLanes;
#pragma GCC unroll 8
  for (int i = 0; i < kUnroll; ++i) {
#pragma GCC unroll 3
    for (int v = 0; v < kVecs; ++v) {
      const __m512 scaled = _mm512_mul_ps(sums[i][v], scale);
      max[v] = _mm512_max_ps(max[v], scaled);
      _mm512_storeu_ps(s + (i * kVecs + v) * kLanes, scaled);
    }
  }
}

template <int kVecs>
ATTENDANT_BF16 void ScoresOf(const ScoresArgs& a) {
  __m512 max[kVecs];
  for (__m512& m : max) {
    m = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  }
  for (int n = 0; n < a.num_padded; n += kUnroll) ScoreKeys<kVecs>(a, n, max);
  for (int v = 0; v < kVecs; ++v) {
    _mm512_storeu_ps(a.block_max + v * kLanes, max[v]);
  }
}

void Scores(const ScoresArgs& a) {
  switch (a.vecs) {
    case 1:
      return ScoresOf<1>(a);
    case 2:
      return ScoresOf<2>(a);
    default:
      return ScoresOf<3>(a);
  }
}

// e^x within 3e-6, well below the rounding of P to bf16; else as Exp of
// math-inl.h: 0 below ln 2^-126.5, NaN stays NaN, exactly 1 for 0.
ATTENDANT_BF16 inline __m512 Exp(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(-88.0296919f), x);
  const __m512 magic = _mm512_set1_ps(12582912.0f + 127.0f);
  const __m512 shifted = _mm512_fmadd_ps(x, _mm512_set1_ps(1.44269504f), magic);
  const __m512 n = _mm512_sub_ps(shifted, magic);
  const __m512 f = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693147181f), x);
  __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(0.041513816f), f,
                             _mm512_set1_ps(0.16787498f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.50003016f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.9999668f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  const __m512i scale = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
  return _mm512_mul_ps(p, _mm512_castsi512_ps(scale));
}

template <int kVecs>
ATTENDANT_BF16 void SoftmaxOf(const SoftmaxArgs& a) {
  const __m512 minus_infinity =
      _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  // (row of key n, row of key n + 1) for each row, from both keys' rows.
  alignas(64) uint16_t pair_up[2 * kLanes];
  for (int i = 0; i < kLanes; ++i) {
    pair_up[2 * i] = static_cast<uint16_t>(i);
    pair_up[2 * i + 1] = static_cast<uint16_t>(kLanes + i);
  }
  const __m512i pairs = _mm512_load_si512(pair_up);
  __m512 base[kVecs], alpha[kVecs], sum[kVecs];
  for (int v = 0; v < kVecs; ++v) {
    const __m512 old_max = _mm512_loadu_ps(a.row_max + v * kLanes);
    const __m512 new_max =
        _mm512_max_ps(old_max, _mm512_loadu_ps(a.block_max + v * kLanes));
    // A row that has seen nothing but -inf subtracts 0.
    base[v] = _mm512_maskz_mov_ps(
        _mm512_cmp_ps_mask(new_max, minus_infinity, _CMP_NEQ_UQ), new_max);
    alpha[v] = Exp(_mm512_sub_ps(old_max, base[v]));
    _mm512_storeu_ps(a.row_max + v * kLanes, new_max);
    _mm512_storeu_ps(a.alpha + v * kLanes, alpha[v]);
    sum[v] = _mm512_setzero_ps();
  }
  const float* s = a.s;
  uint16_t* p = static_cast<uint16_t*>(a.p);
  for (int n = 0; n < a.num_padded; n += 2) {
#pragma GCC unroll 3
    for (int v = 0; v < kVecs; ++v) {
      const __m512 first =
          Exp(_mm512_sub_ps(_mm512_loadu_ps(s + v * kLanes), base[v]));
      const __m512 second = Exp(
          _mm512_sub_ps(_mm512_loadu_ps(s + (kVecs + v) * kLanes), base[v]));
      sum[v] = _mm512_add_ps(sum[v], _mm512_add_ps(first, second));
      const __m512i both =
          reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
      _mm512_storeu_si512(p + v * 2 * kLanes,
                          _mm512_permutexvar_epi16(pairs, both));
    }
    s += 2 * kVecs * kLanes;
    p += kVecs * 2 * kLanes;
  }
  for (int v = 0; v < kVecs; ++v) {
    float* total = a.row_sum + v * kLanes;
    _mm512_storeu_ps(total,
                     _mm512_fmadd_ps(_mm512_loadu_ps(total), alpha[v], sum[v]));
  }
}

void Softmax(const SoftmaxArgs& a) {
  switch (a.vecs) {
    case 1:
      return SoftmaxOf<1>(a);
    case 2:
      return SoftmaxOf<2>(a);
    default:
      return SoftmaxOf<3>(a);
  }
}

template <int kVecs>
ATTENDANT_BF16 void ValuesOf(const ValuesArgs& a) {
  constexpr int64_t kRows = kVecs * kLanes;
  for (int64_t panel = 0; panel < a.num_panels; ++panel) {
    float* o = a.o + panel * kUnroll * kRows;
    __m512 sums[kUnroll][kVecs];
#pragma GCC unroll 8
    for (int i = 0; i < kUnroll; ++i) {
#pragma GCC unroll 3
      for (int v = 0; v < kVecs; ++v) {
        sums[i][v] = _mm512_mul_ps(_mm512_loadu_ps(o + i * kRows + v * kLanes),
                                   _mm512_loadu_ps(a.alpha + v * kLanes));
      }
    }
    const uint16_t* values =
        static_cast<const uint16_t*>(a.v) + panel * a.panel_pitch;
    const uint16_t* p = static_cast<const uint16_t*>(a.p);
    for (int n = 0; n < a.num_padded; n += 2) {
      __m512bh weights[kVecs];
#pragma GCC unroll 3
      for (int v = 0; v < kVecs; ++v) {
        weights[v] = LoadPairs(p + v * 2 * kLanes);
      }
      p += 2 * kRows;
#pragma GCC unroll 8
      for (int i = 0; i < kUnroll; ++i) {
        const __m512bh value = BroadcastPair(values + 2 * i);
#pragma GCC unroll 3
        for (int v = 0; v < kVecs; ++v) {
          sums[i][v] = _mm512_dpbf16_ps(sums[i][v], value, weights[v]);
        }
      }
      values += 2 * kUnroll;
    }
#pragma GCC unroll 8
    for (int i = 0; i < kUnroll; ++i) {
#pragma GCC unroll 3
      for (int v = 0; v < kVecs; ++v) {
        _mm512_storeu_ps(o + i * kRows + v * kLanes, sums[i][v]);
      }
    }
  }
}

void Values(const ValuesArgs& a) {
  switch (a.vecs) {
    case 1:
      return ValuesOf<1>(a);
    case 2:
      return ValuesOf<2>(a);
    default:
      return ValuesOf<3>(a);
  }
}

// Up to 8 elements of a row; 0 from `count` on. Whole rows are read in place.
ATTENDANT_BF16 inline __m128i LoadValues(const uint16_t* row, int64_t count) {
  if (count >= kUnroll) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(row));
  }
  return _mm_maskz_loadu_epi16(static_cast<__mmask8>((1 << count) - 1), row);
}

// Lanes that are inf or NaN.
ATTENDANT_BF16 inline __mmask8 NotFinite(__m128i bf16) {
  const __m128i exponent = _mm_set1_epi16(0x7f80);
  return _mm_cmpeq_epi16_mask(_mm_and_si128(bf16, exponent), exponent);
}

ATTENDANT_BF16 bool PackValues(const PackValuesArgs& a) {
  unsigned poison = 0;
  const auto* rows = static_cast<const uint16_t*>(a.v);
  for (int n = 0; n < a.num_padded; n += 2) {
    uint16_t* to = static_cast<uint16_t*>(a.packed) + n * kUnroll;
    for (int64_t c = 0; c < a.head_dim_v; c += kUnroll, to += a.panel_pitch) {
      const int64_t count = a.head_dim_v - c;
      __m128i even = _mm_setzero_si128(), odd = _mm_setzero_si128();
      if (n < a.num_keys) even = LoadValues(rows + n * a.v_pitch + c, count);
      if (n + 1 < a.num_keys) {
        odd = LoadValues(rows + (n + 1) * a.v_pitch + c, count);
      }
      const __mmask8 bad_even = NotFinite(even), bad_odd = NotFinite(odd);
      poison |= bad_even | bad_odd;
      even = _mm_mask_mov_epi16(even, bad_even, _mm_setzero_si128());
      odd = _mm_mask_mov_epi16(odd, bad_odd, _mm_setzero_si128());
      auto* place = reinterpret_cast<__m128i*>(to);
      _mm_storeu_si128(place, _mm_unpacklo_epi16(even, odd));
      _mm_storeu_si128(place + 1, _mm_unpackhi_epi16(even, odd));
    }
  }
  return poison == 0;
}

}  // namespace

TileKernels Avx512Bf16TileKernels(const TileKernels& avx3) {
  return {.lanes = kLanes,
          .key_step = kUnroll,
          .dim_step = 2,
          .panel = kUnroll,
          .bf16_operands = true,
          .begin = nullptr,
          .end = nullptr,
          .scores = Scores,
          .mask = avx3.mask,
          .softmax = Softmax,
          .values = Values,
          .pack_values = PackValues};
}

}  // namespace attendant::kernels::cpu
