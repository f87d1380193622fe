// Both matrix products of the tile form on AMX. A tile of K as it lies in
// memory (16 keys of 32 dims) times a tile of Q (pairs of dims of 16 rows)
// gives S transposed; a tile of packed V (16 dims of 32 keys) times one of P
// (pairs of keys of 16 rows) gives O transposed.
//
// A sum's order is that of the instruction, 32 dims or keys at a time on the
// grid of key_step, so a row's bits do not depend on its tile.
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/cpu/amx.h"
#include "kernels/cpu/amx_tiles.h"

#define ATTENDANT_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq")))

namespace attendant::kernels::cpu {
namespace {

constexpr int kLanes = 16;
constexpr int kStep = 32;  // bf16 numbers in a row of a tile
constexpr int kMaxHeadDim = 256;

// kVecs tiles from tile kFirst on.
template <class Tiles, int kFirst, int kVecs>
inline void ZeroTiles() {
  Tiles::template Zero<kFirst>();
  if constexpr (kVecs > 1) ZeroTiles<Tiles, kFirst + 1, kVecs - 1>();
}
template <class Tiles, int kFirst, int kVecs>
inline void LoadTiles(const float* from, int64_t pitch) {
  Tiles::template Load<kFirst>(from, pitch * sizeof(float));
  if constexpr (kVecs > 1) {
    LoadTiles<Tiles, kFirst + 1, kVecs - 1>(from + kLanes, pitch);
  }
}
template <class Tiles, int kFirst, int kVecs>
inline void StoreTiles(float* to, int64_t pitch) {
  Tiles::template Store<kFirst>(to, pitch * sizeof(float));
  if constexpr (kVecs > 1) {
    StoreTiles<Tiles, kFirst + 1, kVecs - 1>(to + kLanes, pitch);
  }
}
// Sums in tiles kSum.., the right operands in tiles 4.., pairs as words.
template <class Tiles, int kSum, int kVecs>
inline void LoadAndDot(const float* pairs, int64_t pitch) {
  Tiles::template Load<kSum + 4>(pairs, pitch * sizeof(float));
  Tiles::template Dot<kSum, 3, kSum + 4>();
  if constexpr (kVecs > 1) {
    LoadAndDot<Tiles, kSum + 1, kVecs - 1>(pairs + kLanes, pitch);
  }
}

// S of 16 keys at `k`, not yet scaled.
template <class Tiles, int kVecs>
inline void ScoreKeys(const ScoresArgs& a, const uint16_t* k, int64_t k_pitch,
                      float* s) {
  constexpr int64_t kRows = kVecs * kLanes;
  const float* q = static_cast<const float*>(a.q);
  ZeroTiles<Tiles, 0, kVecs>();
  for (int64_t c = 0; c < a.head_dim; c += kStep) {
    Tiles::template Load<3>(k + c, k_pitch * sizeof(uint16_t));
    LoadAndDot<Tiles, 0, kVecs>(q + c / 2 * kRows, kRows);
  }
  StoreTiles<Tiles, 0, kVecs>(s, kRows);
}

template <int kVecs>
ATTENDANT_AVX512 inline void ScaleScores(float scale, float* s, __m512* max) {
  const __m512 factor = _mm512_set1_ps(scale);
  for (int n = 0; n < kTileRows; ++n) {
#pragma GCC unroll 3
    for (int v = 0; v < kVecs; ++v, s += kLanes) {
      const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(s), factor);
      max[v] = _mm512_max_ps(max[v], scaled);
      _mm512_storeu_ps(s, scaled);
    }
  }
}

// The products run one tile of keys ahead of the scaling: both units work.
template <class Tiles, int kVecs>
ATTENDANT_AVX512 void ScoresOf(const ScoresArgs& a) {
  constexpr int64_t kFloats = kTileRows * kVecs * kLanes;
  const auto* k = static_cast<const uint16_t*>(a.k);
  __m512 max[kVecs];
  for (__m512& m : max) {
    m = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  }
  alignas(64) uint16_t last[kTileRows * kMaxHeadDim];
  float* s = a.s;
  for (int n = 0; n < a.num_padded; n += kTileRows, s += kFloats) {
    const int left = std::clamp(a.num_keys - n, 0, kTileRows);
    if (left == kTileRows) {
      ScoreKeys<Tiles, kVecs>(a, k + n * a.k_pitch, a.k_pitch, s);
    } else {  // nothing behind the last key is read
      std::memset(last, 0, sizeof(last));
      for (int i = 0; i < left; ++i) {
        std::memcpy(last + i * a.head_dim, k + (n + i) * a.k_pitch,
                    a.head_dim * sizeof(uint16_t));
      }
      ScoreKeys<Tiles, kVecs>(a, last, a.head_dim, s);
    }
    if (n > 0) ScaleScores<kVecs>(a.scale, s - kFloats, max);
  }
  ScaleScores<kVecs>(a.scale, s - kFloats, max);
  for (int v = 0; v < kVecs; ++v) {
    _mm512_storeu_ps(a.block_max + v * kLanes, max[v]);
  }
}

template <class Tiles>
void Scores(const ScoresArgs& a) {
  switch (a.vecs) {
    case 1:
      return ScoresOf<Tiles, 1>(a);
    case 2:
      return ScoresOf<Tiles, 2>(a);
    default:
      return ScoresOf<Tiles, 3>(a);
  }
}

template <int kVecs>
ATTENDANT_AVX512 inline void ShrinkOutputs(const ValuesArgs& a, int64_t panel) {
  float* o = a.o + panel * kTileRows * kVecs * kLanes;
  __m512 alpha[kVecs];
  for (int v = 0; v < kVecs; ++v) {
    alpha[v] = _mm512_loadu_ps(a.alpha + v * kLanes);
  }
  for (int d = 0; d < kTileRows; ++d) {
#pragma GCC unroll 3
    for (int v = 0; v < kVecs; ++v, o += kLanes) {
      _mm512_storeu_ps(o, _mm512_mul_ps(_mm512_loadu_ps(o), alpha[v]));
    }
  }
}

template <class Tiles, int kVecs>
inline void AddValues(const ValuesArgs& a, int64_t panel) {
  constexpr int64_t kRows = kVecs * kLanes;
  float* o = a.o + panel * kTileRows * kRows;
  const auto* v = static_cast<const uint16_t*>(a.v) + panel * a.panel_pitch;
  const float* p = static_cast<const float*>(a.p);
  LoadTiles<Tiles, 0, kVecs>(o, kRows);
  for (int n = 0; n < a.num_padded; n += kStep) {
    Tiles::template Load<3>(v + n * kTileRows, kTileBytes);
    LoadAndDot<Tiles, 0, kVecs>(p + n / 2 * kRows, kRows);
  }
  StoreTiles<Tiles, 0, kVecs>(o, kRows);
}

// A panel shrinks long before its tile is loaded: a tile cannot be loaded from
// stores that are still on their way.
template <class Tiles, int kVecs>
ATTENDANT_AVX512 void ValuesOf(const ValuesArgs& a) {
  constexpr int64_t kAhead = 2;
  for (int64_t panel = 0; panel < std::min(kAhead, a.num_panels); ++panel) {
    ShrinkOutputs<kVecs>(a, panel);
  }
  for (int64_t panel = 0; panel < a.num_panels; ++panel) {
    if (panel + kAhead < a.num_panels) ShrinkOutputs<kVecs>(a, panel + kAhead);
    AddValues<Tiles, kVecs>(a, panel);
  }
}

template <class Tiles>
void Values(const ValuesArgs& a) {
  switch (a.vecs) {
    case 1:
      return ValuesOf<Tiles, 1>(a);
    case 2:
      return ValuesOf<Tiles, 2>(a);
    default:
      return ValuesOf<Tiles, 3>(a);
  }
}

template <class Tiles>
TileKernels TileKernelsOn(const TileKernels& avx512_bf16) {
  TileKernels kernels = avx512_bf16;
  kernels.key_step = kStep;
  kernels.dim_step = kStep;
  kernels.panel = kTileRows;
  kernels.begin = Tiles::Configure;
  kernels.end = Tiles::Release;
  kernels.scores = Scores<Tiles>;
  kernels.values = Values<Tiles>;
  kernels.pack_values = AmxPackValues;
  return kernels;
}

}  // namespace

TileKernels AmxTileKernels(const TileKernels& avx512_bf16) {
  return TileKernelsOn<AmxTiles>(avx512_bf16);
}

TileKernels EmulatedAmxTileKernels(const TileKernels& avx512_bf16) {
  return TileKernelsOn<EmulatedAmxTiles>(avx512_bf16);
}

}  // namespace attendant::kernels::cpu
