// Values of the decode form on AMX: V as it lies in memory, 16 keys of 32 dims,
// is the right operand. The instruction takes its rows for pairs of keys of 16
// dims each, of which it adds the first times an even element of the left
// operand and the second times an odd one. So a row of P with zeros in between
// gives the even dims, and one shifted by an element the odd dims:
//
//     left rows 0 to 7: P[0] 0 P[1] 0 ...    sums of dims 0 2 4 ... 30
//     left rows 8 to 15: 0 P[0] 0 P[1] ...   sums of dims 1 3 5 ... 31
//
// Nothing is packed, and all 16 rows of the tile work.
#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels/cpu/amx.h"
#include "kernels/cpu/amx_decode.h"
#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/avx512_bf16.h"

namespace attendant::kernels::cpu {
namespace {

constexpr int kOdd = kTileRows / 2;  // the row of the first odd sums
static_assert(kMaxDecodeRows <= kOdd);
// Steps of V whose sums stay in tiles of their own, 0 to 3.
constexpr int kHeldSteps = 4;
// Tiles of P that are made before the first of them is used: a tile is not
// loaded from stores that are still on their way.
constexpr int kWeightsAhead = 2;
constexpr int kWeights = 4;  // a power of two above kWeightsAhead

using Tile = float[kTileRows][kTileRows];

// Sums of steps of 32 dims, as the tiles hold them.
struct alignas(64) SumTiles {
  Tile of[kMaxDecodeSteps] = {};
};

struct alignas(64) WeightTiles {
  uint32_t of[kWeights][kTileRows][kTileRows] = {};  // [row][key], two halves
};

struct Halves {
  __m512i even, odd, low, high;
};
ATTENDANT_AMX_DECODE inline Halves MakeHalves() {
  return {
      _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28,
                        30),
      _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29,
                        31),
      _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
      _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30,
                        15, 31)};
}

// alpha * O.
ATTENDANT_AMX_DECODE inline void LoadSums(const DecodeValuesArgs& a,
                                          SumTiles* sums) {
  const Halves halves = MakeHalves();
  for (int r = 0; r < a.rows; ++r) {
    const __m512 alpha = _mm512_set1_ps(a.alpha[r]);
    for (int64_t step = 0; step < a.head_dim_v / kDecodeStep; ++step) {
      const float* o = a.o + r * a.o_pitch + step * kDecodeStep;
      const __m512 low = _mm512_mul_ps(_mm512_loadu_ps(o), alpha);
      const __m512 high = _mm512_mul_ps(_mm512_loadu_ps(o + 16), alpha);
      _mm512_store_ps(sums->of[step][r],
                      _mm512_permutex2var_ps(low, halves.even, high));
      _mm512_store_ps(sums->of[step][kOdd + r],
                      _mm512_permutex2var_ps(low, halves.odd, high));
    }
  }
}

ATTENDANT_AMX_DECODE inline void StoreSums(const DecodeValuesArgs& a,
                                           const SumTiles& sums) {
  const Halves halves = MakeHalves();
  for (int r = 0; r < a.rows; ++r) {
    for (int64_t step = 0; step < a.head_dim_v / kDecodeStep; ++step) {
      float* o = a.o + r * a.o_pitch + step * kDecodeStep;
      const __m512 even = _mm512_load_ps(sums.of[step][r]);
      const __m512 odd = _mm512_load_ps(sums.of[step][kOdd + r]);
      _mm512_storeu_ps(o, _mm512_permutex2var_ps(even, halves.low, odd));
      _mm512_storeu_ps(o + 16, _mm512_permutex2var_ps(even, halves.high, odd));
    }
  }
}

ATTENDANT_AMX_DECODE inline bool AreFinite(const DecodeValuesArgs& a,
                                           const SumTiles& sums) {
  __m512 poison = _mm512_setzero_ps();
  for (int64_t step = 0; step < a.head_dim_v / kDecodeStep; ++step) {
    for (int r = 0; r < a.rows; ++r) {
      for (int row : {r, kOdd + r}) {
        poison = _mm512_fmadd_ps(_mm512_load_ps(sums.of[step][row]),
                                 _mm512_setzero_ps(), poison);
      }
    }
  }
  return _mm512_cmp_ps_mask(poison, _mm512_setzero_ps(), _CMP_NEQ_UQ) == 0;
}

// P of keys [n, n + 16), rounded to bf16. It is 0 behind the last key.
ATTENDANT_AMX_DECODE inline void PackWeights(const DecodeValuesArgs& a, int n,
                                             WeightTiles* weights) {
  if (n >= a.num_keys) return;
  auto* to = weights->of[n / kTileRows % kWeights];
  for (int r = 0; r < a.rows; ++r) {
    const __m512i p = _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(
        _mm512_cvtneps_pbh(_mm512_loadu_ps(a.p + r * kDecodeBlock + n))));
    _mm512_store_si512(to[r], p);
    _mm512_store_si512(to[kOdd + r], _mm512_slli_epi32(p, 16));
  }
}

// Zeros in place of what is not finite.
inline void KeepFinite(const RowTile& from, int rows, int64_t dims,
                       RowTileCopy* to) {
  constexpr uint16_t kExponent = 0x7f80;
  std::memset(to, 0, sizeof(*to));
  for (int i = 0; i < rows; ++i) {
    for (int64_t d = 0; d < dims; ++d) {
      const uint16_t value = from.rows[i * from.pitch + d];
      if ((value & kExponent) != kExponent) to->rows[i][d] = value;
    }
  }
}

// Adds all keys to steps [first, first + kSteps).
template <class Tiles, int kSteps, bool kFiniteOnly>
ATTENDANT_AMX_DECODE void AddSteps(const DecodeValuesArgs& a, int64_t first,
                                   SumTiles* sums) {
  constexpr std::make_integer_sequence<int, kSteps> kAll;
  const auto each = [&]<int... kStep>(std::integer_sequence<int, kStep...>,
                                      const auto& call) ATTENDANT_AMX_DECODE {
    (call(std::integral_constant<int, kStep>()), ...);
  };
  const auto* v = static_cast<const uint16_t*>(a.v) + first * kDecodeStep;
  const int64_t dims = kSteps * kDecodeStep;
  const RowsAhead ahead(v, dims, a.v_pitch, 2);
  WeightTiles weights;
  for (int i = 0; i < kWeightsAhead; ++i) {
    PackWeights(a, i * kTileRows, &weights);
  }
  each(kAll, [&](auto step) {
    Tiles::template Load<step>(sums->of[first + step], kTileBytes);
  });
  RowTileCopy copy;
  for (int n = 0; n < a.num_keys; n += kTileRows) {
    PackWeights(a, n + kWeightsAhead * kTileRows, &weights);
    RowTile keys = TileOfRows(v, a.v_pitch, n, a.num_keys, dims, &copy);
    if constexpr (kFiniteOnly) {
      RowTileCopy finite;
      KeepFinite(keys, kTileRows, dims, &finite);
      copy = finite;
      keys = {copy.rows[0], kMaxDecodeSteps * kDecodeStep};
    }
    ahead.FetchPages<kTileRows>(n);
    const TileAhead next{ahead.Of(n), ahead.pitch_bytes()};
    Tiles::template Load<4>(weights.of[n / kTileRows % kWeights], kTileBytes);
    each(kAll, [&](auto step) ATTENDANT_AMX_DECODE {
      constexpr int kValues = 6 + step % 2;
      keys.Load<Tiles, kValues>(step);
      Tiles::template Dot<step, 4, kValues>();
      next.Fetch(step, kSteps);
    });
  }
  each(kAll, [&](auto step) {
    Tiles::template Store<step>(sums->of[first + step], kTileBytes);
  });
}

template <class Tiles, bool kFiniteOnly>
ATTENDANT_AMX_DECODE void AddValues(const DecodeValuesArgs& a, SumTiles* sums) {
  LoadSums(a, sums);
  const int64_t steps = a.head_dim_v / kDecodeStep;
  int64_t step = 0;
  for (; step + kHeldSteps <= steps; step += kHeldSteps) {
    AddSteps<Tiles, kHeldSteps, kFiniteOnly>(a, step, sums);
  }
  if (steps - step == 3) AddSteps<Tiles, 3, kFiniteOnly>(a, step, sums);
  if (steps - step == 2) AddSteps<Tiles, 2, kFiniteOnly>(a, step, sums);
  if (steps - step == 1) AddSteps<Tiles, 1, kFiniteOnly>(a, step, sums);
}

template <class Tiles>
ATTENDANT_AMX_DECODE bool Values(const DecodeValuesArgs& a) {
  if (a.head_dim_v % kDecodeStep != 0) return Avx512Bf16DecodeValues(a);
  SumTiles sums;
  AddValues<Tiles, false>(a, &sums);
  const bool finite = AreFinite(a, sums);
  if (!finite) AddValues<Tiles, true>(a, &sums);
  StoreSums(a, sums);
  return finite;
}

}  // namespace

bool AmxDecodeValues(const DecodeValuesArgs& args) {
  return Values<AmxTiles>(args);
}
bool EmulatedAmxDecodeValues(const DecodeValuesArgs& args) {
  return Values<EmulatedAmxTiles>(args);
}

}  // namespace attendant::kernels::cpu
