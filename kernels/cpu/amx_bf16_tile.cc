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

// Up to 2 x 2 tiles of sums, c[i] + 16 * j = (sum over steps of a[i] times b +
// 16 * j). Pitches and steps in elements of their pointers.
struct Product {
  const uint16_t* a[2] = {};
  int64_t a_pitch[2] = {};
  int64_t a_step;
  const float* b;  // pairs of bf16 numbers
  int64_t b_step;
  float* c[2] = {};
  int64_t pitch;  // of b and c
  int64_t steps;
};

// Sums are tiles 0 to 3, left operands 4 and 5, right ones 6 and 7.
template <class Tiles, int kSum, bool kAdd>
inline void StartSum(const float* c, int64_t pitch) {
  if constexpr (kAdd) {
    Tiles::template Load<kSum>(c, pitch * sizeof(float));
  } else {
    Tiles::template Zero<kSum>();
  }
}

template <class Tiles, int kTile>
inline void LoadLeft(const Product& p, int i, int64_t step) {
  Tiles::template Load<kTile>(p.a[i] + step * p.a_step,
                              p.a_pitch[i] * sizeof(uint16_t));
}

template <class Tiles, int kTile>
inline void LoadRight(const Product& p, int j, int64_t step) {
  Tiles::template Load<kTile>(p.b + step * p.b_step + j * kLanes,
                              p.pitch * sizeof(float));
}

// One step of two left operands and one right one, in tiles of their own, so
// that the next step's loads need not wait for this one's products.
template <class Tiles, int kLeft0, int kLeft1, int kRight>
inline void TwoByOne(const Product& p, int64_t step) {
  LoadRight<Tiles, kRight>(p, 0, step);
  LoadLeft<Tiles, kLeft0>(p, 0, step);
  Tiles::template Dot<0, kLeft0, kRight>();
  LoadLeft<Tiles, kLeft1>(p, 1, step);
  Tiles::template Dot<2, kLeft1, kRight>();
}

// Each tile is loaded again as early as its last product lets it.
template <class Tiles>
inline void TwoByTwo(const Product& p, int64_t step) {
  LoadRight<Tiles, 6>(p, 0, step);
  LoadLeft<Tiles, 4>(p, 0, step);
  Tiles::template Dot<0, 4, 6>();
  LoadLeft<Tiles, 5>(p, 1, step);
  Tiles::template Dot<2, 5, 6>();
  LoadRight<Tiles, 7>(p, 1, step);
  Tiles::template Dot<1, 4, 7>();
  Tiles::template Dot<3, 5, 7>();
}

template <class Tiles, int kA, int kB, bool kAdd>
inline void Multiply(const Product& p) {
  const int64_t pitch = p.pitch * sizeof(float);
  StartSum<Tiles, 0, kAdd>(p.c[0], p.pitch);
  if constexpr (kB == 2) StartSum<Tiles, 1, kAdd>(p.c[0] + kLanes, p.pitch);
  if constexpr (kA == 2) StartSum<Tiles, 2, kAdd>(p.c[1], p.pitch);
  if constexpr (kA == 2 && kB == 2) {
    StartSum<Tiles, 3, kAdd>(p.c[1] + kLanes, p.pitch);
  }
  for (int64_t step = 0; step < p.steps; ++step) {
    if constexpr (kA == 2 && kB == 2) {
      TwoByTwo<Tiles>(p, step);
    } else if constexpr (kA == 2) {
      TwoByOne<Tiles, 4, 5, 6>(p, step);
      if (++step < p.steps) TwoByOne<Tiles, 1, 3, 7>(p, step);
    } else {
      LoadLeft<Tiles, 4>(p, 0, step);
      LoadRight<Tiles, 6>(p, 0, step);
      Tiles::template Dot<0, 4, 6>();
      if constexpr (kB == 2) {
        LoadRight<Tiles, 7>(p, 1, step);
        Tiles::template Dot<1, 4, 7>();
      }
    }
  }
  Tiles::template Store<0>(p.c[0], pitch);
  if constexpr (kB == 2) Tiles::template Store<1>(p.c[0] + kLanes, pitch);
  if constexpr (kA == 2) Tiles::template Store<2>(p.c[1], pitch);
  if constexpr (kA == 2 && kB == 2) {
    Tiles::template Store<3>(p.c[1] + kLanes, pitch);
  }
}

// All vectors of rows: two, then one.
template <class Tiles, int kA, int kVecs, bool kAdd>
inline void MultiplyRows(Product p) {
  if constexpr (kVecs >= 2) {
    Multiply<Tiles, kA, 2, kAdd>(p);
    p.b += 2 * kLanes;
    for (float*& c : p.c) c += 2 * kLanes;
  }
  if constexpr (kVecs != 2) Multiply<Tiles, kA, 1, kAdd>(p);
}

template <int kVecs>
ATTENDANT_AVX512 inline void ScaleScores(float scale, float* s, __m512* max) {
  const __m512 factor = _mm512_set1_ps(scale);
  for (int n = 0; n < kStep; ++n) {
#pragma GCC unroll 3
    for (int v = 0; v < kVecs; ++v, s += kLanes) {
      const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(s), factor);
      max[v] = _mm512_max_ps(max[v], scaled);
      _mm512_storeu_ps(s, scaled);
    }
  }
}

// S of kStep keys from key n on, not yet scaled. Nothing behind the last key is
// read: its tile goes through `copy`.
template <class Tiles, int kVecs>
inline void ScoreKeys(const ScoresArgs& a, int n, uint16_t* copy, float* s) {
  constexpr int64_t kRows = kVecs * kLanes;
  Product p = {.a_step = kStep,
               .b = static_cast<const float*>(a.q),
               .b_step = kTileRows * kRows,
               .pitch = kRows,
               .steps = a.head_dim / kStep};
  for (int i = 0; i < 2; ++i, n += kTileRows, copy += kTileRows * kMaxHeadDim) {
    const int left = std::clamp(a.num_keys - n, 0, kTileRows);
    p.a[i] = static_cast<const uint16_t*>(a.k) + n * a.k_pitch;
    p.a_pitch[i] = a.k_pitch;
    p.c[i] = s + i * kTileRows * kRows;
    if (left == kTileRows) continue;
    std::memset(copy, 0, kTileRows * a.head_dim * sizeof(uint16_t));
    for (int key = 0; key < left; ++key) {
      std::memcpy(copy + key * a.head_dim, p.a[i] + key * a.k_pitch,
                  a.head_dim * sizeof(uint16_t));
    }
    p.a[i] = copy;
    p.a_pitch[i] = a.head_dim;
  }
  MultiplyRows<Tiles, 2, kVecs, false>(p);
}

// The products run one step ahead of the scaling: both units work.
template <class Tiles, int kVecs>
ATTENDANT_AVX512 void ScoresOf(const ScoresArgs& a) {
  constexpr int64_t kFloats = kStep * kVecs * kLanes;
  __m512 max[kVecs];
  for (__m512& m : max) {
    m = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  }
  alignas(64) uint16_t copy[2 * kTileRows * kMaxHeadDim];
  float* s = a.s;
  for (int n = 0; n < a.num_padded; n += kStep, s += kFloats) {
    ScoreKeys<Tiles, kVecs>(a, n, copy, s);
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

// kPanels panels of dims.
template <class Tiles, int kVecs, int kPanels>
inline void AddValues(const ValuesArgs& a, int64_t panel) {
  constexpr int64_t kRows = kVecs * kLanes;
  const auto* v = static_cast<const uint16_t*>(a.v) + panel * a.panel_pitch;
  float* o = a.o + panel * kTileRows * kRows;
  MultiplyRows<Tiles, kPanels, kVecs, true>(
      {.a = {v, v + a.panel_pitch},
       .a_pitch = {kStep, kStep},
       .a_step = kTileRows * kStep,
       .b = static_cast<const float*>(a.p),
       .b_step = kTileRows * kRows,
       .c = {o, o + kTileRows * kRows},
       .pitch = kRows,
       .steps = a.num_padded / kStep});
}

// A panel shrinks long before its tile is loaded: a tile cannot be loaded from
// stores that are still on their way.
template <class Tiles, int kVecs>
ATTENDANT_AVX512 void ValuesOf(const ValuesArgs& a) {
  const auto shrink = [&](int64_t panel) {
    if (panel < a.num_panels) ShrinkOutputs<kVecs>(a, panel);
  };
  for (int64_t panel = 0; panel < 4; ++panel) shrink(panel);
  int64_t panel = 0;
  for (; panel + 2 <= a.num_panels; panel += 2) {
    AddValues<Tiles, kVecs, 2>(a, panel);
    shrink(panel + 4);
    shrink(panel + 5);
  }
  if (panel < a.num_panels) AddValues<Tiles, kVecs, 1>(a, panel);
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
