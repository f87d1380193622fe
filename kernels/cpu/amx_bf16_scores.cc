// Scores of the decode form on AMX: K as it lies in memory (16 keys of 32 dims)
// times a tile of Q (pairs of dims of up to 16 rows). Where there is AMX,
// vdpbf16ps takes two clocks: 32 for 4 rows of a key of 128 dims, and tdpbf16ps
// about 4.
//
// A sum's order is that of the instruction, 32 dims at a time, so a score does
// not depend on the rows or keys beside it.
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

constexpr int kKeys = 2 * kTileRows;  // at once: two chains of products
// Steps of Q that stay in tiles of their own, 4 to 7.
constexpr int kHeldSteps = 4;

// Q in tiles: [step][pair of dims][row].
struct alignas(64) QueryTiles {
  uint32_t pairs[kMaxDecodeSteps][kTileRows][kTileRows] = {};
};

// Q was widened from bf16, so cutting is exact.
void PackQuery(const DecodeScoresArgs& a, QueryTiles* q) {
  for (int r = 0; r < a.rows; ++r) {
    const float* row = a.q + r * a.q_pitch;
    for (int64_t d = 0; d < a.head_dim; d += 2) {
      uint32_t bits[2];
      std::memcpy(bits, row + d, sizeof(bits));
      q->pairs[d / kDecodeStep][d % kDecodeStep / 2][r] =
          bits[0] >> 16 | (bits[1] & 0xffff0000u);
    }
  }
}

// S of 32 keys, not yet scaled.
struct alignas(64) ScoreTiles {
  float s[kKeys][kTileRows];  // [key][row]
};

// A step of the products of two tiles of keys, and the fetching of what lies
// ahead of them.
template <class Tiles, int kQuery>
ATTENDANT_AMX_DECODE inline void ScoreStep(const RowTile (&keys)[2],
                                           int64_t step, int64_t steps,
                                           const TileAhead (&ahead)[2]) {
  keys[0].Load<Tiles, 2>(step);
  Tiles::template Dot<0, 2, kQuery>();
  ahead[0].Fetch(step, steps);
  keys[1].Load<Tiles, 3>(step);
  Tiles::template Dot<1, 3, kQuery>();
  ahead[1].Fetch(step, steps);
}

// kSteps: all steps, whose Q is in tiles 4 on; 0: any number, Q is loaded.
template <class Tiles, int kSteps>
ATTENDANT_AMX_DECODE inline void ScoreKeys(const RowTile (&keys)[2],
                                           int64_t steps, const QueryTiles& q,
                                           const TileAhead (&ahead)[2],
                                           ScoreTiles* to) {
  Tiles::template Zero<0>();
  Tiles::template Zero<1>();
  if constexpr (kSteps > 0) {
    [&]<int... kStep>(std::integer_sequence<int, kStep...>)
        ATTENDANT_AMX_DECODE {
      (ScoreStep<Tiles, 4 + kStep>(keys, kStep, kSteps, ahead), ...);
    }
    (std::make_integer_sequence<int, kSteps>());
  } else {
    for (int64_t step = 0; step < steps; ++step) {
      Tiles::template Load<4>(q.pairs[step], kTileBytes);
      ScoreStep<Tiles, 4>(keys, step, steps, ahead);
    }
  }
  Tiles::template Store<0>(to->s[0], kTileBytes);
  Tiles::template Store<1>(to->s[kTileRows], kTileBytes);
}

// Rows [row, row + 4) of 16 keys, scaled, a row behind the other.
ATTENDANT_AMX_DECODE inline void StoreRows(const float (*s)[kTileRows], int row,
                                           int rows, __m512 scale, float* to) {
  __m512 keys[4];  // of i, i + 4, i + 8, i + 12: four rows each
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const auto load = [&](int key) ATTENDANT_AMX_DECODE {
      return _mm_load_ps(s[key] + row);
    };
    keys[i] = _mm512_castps128_ps512(load(i));
    keys[i] = _mm512_mask_broadcast_f32x4(keys[i], 0x00f0, load(i + 4));
    keys[i] = _mm512_mask_broadcast_f32x4(keys[i], 0x0f00, load(i + 8));
    keys[i] = _mm512_mask_broadcast_f32x4(keys[i], 0xf000, load(i + 12));
  }
  const auto pair = [](__m512 a, __m512 b) ATTENDANT_AMX_DECODE {
    return std::pair(_mm512_castps_pd(_mm512_unpacklo_ps(a, b)),
                     _mm512_castps_pd(_mm512_unpackhi_ps(a, b)));
  };
  const auto [low01, high01] = pair(keys[0], keys[1]);
  const auto [low23, high23] = pair(keys[2], keys[3]);
  const __m512d of_row[4] = {
      _mm512_unpacklo_pd(low01, low23), _mm512_unpackhi_pd(low01, low23),
      _mm512_unpacklo_pd(high01, high23), _mm512_unpackhi_pd(high01, high23)};
  for (int r = 0; r < std::min(4, rows - row); ++r) {
    _mm512_storeu_ps(to + (row + r) * kDecodeBlock,
                     _mm512_mul_ps(_mm512_castpd_ps(of_row[r]), scale));
  }
}

ATTENDANT_AMX_DECODE inline void StoreScores(const DecodeScoresArgs& a, int n,
                                             const ScoreTiles& from) {
  const __m512 scale = _mm512_set1_ps(a.scale);
  for (int key = 0; key < kKeys && n + key < a.num_keys; key += kTileRows) {
    for (int row = 0; row < a.rows; row += 4) {
      StoreRows(from.s + key, row, a.rows, scale, a.s + n + key);
    }
  }
}

// The products run one step ahead of the storing: both units work, and nothing
// is loaded from stores that are still on their way.
template <class Tiles, int kSteps>
ATTENDANT_AMX_DECODE void ScoresOf(const DecodeScoresArgs& a,
                                   const QueryTiles& q) {
  const int64_t steps = a.head_dim / kDecodeStep;
  if constexpr (kSteps > 0) {
    [&]<int... kStep>(std::integer_sequence<int, kStep...>) {
      (Tiles::template Load<4 + kStep>(q.pairs[kStep], kTileBytes), ...);
    }
    (std::make_integer_sequence<int, kSteps>());
  }
  const RowsAhead ahead(a.k, a.head_dim, a.k_pitch, 2);
  RowTileCopy copies[2];
  ScoreTiles scores[2];
  int n = 0;
  for (; n < a.num_keys; n += kKeys) {
    RowTile keys[2];
    for (int i = 0; i < 2; ++i) {
      keys[i] = TileOfRows(a.k, a.k_pitch, n + i * kTileRows, a.num_keys,
                           a.head_dim, &copies[i]);
    }
    ahead.FetchPages<kKeys>(n);
    ScoreKeys<Tiles, kSteps>(keys, steps, q,
                             {{ahead.Of(n), ahead.pitch_bytes()},
                              {ahead.Of(n + kTileRows), ahead.pitch_bytes()}},
                             &scores[n / kKeys % 2]);
    if (n > 0) StoreScores(a, n - kKeys, scores[(n / kKeys + 1) % 2]);
  }
  StoreScores(a, n - kKeys, scores[(n / kKeys + 1) % 2]);
}

template <class Tiles>
void Scores(const DecodeScoresArgs& a) {
  if (a.head_dim % kDecodeStep != 0) return Avx512Bf16DecodeScores(a);
  QueryTiles q;
  PackQuery(a, &q);
  switch (a.head_dim / kDecodeStep) {
    case 1:
      return ScoresOf<Tiles, 1>(a, q);
    case 2:
      return ScoresOf<Tiles, 2>(a, q);
    case 3:
      return ScoresOf<Tiles, 3>(a, q);
    case kHeldSteps:
      return ScoresOf<Tiles, kHeldSteps>(a, q);
    default:
      return ScoresOf<Tiles, 0>(a, q);
  }
}

}  // namespace

void AmxDecodeScores(const DecodeScoresArgs& args) { Scores<AmxTiles>(args); }
void EmulatedAmxDecodeScores(const DecodeScoresArgs& args) {
  Scores<EmulatedAmxTiles>(args);
}

}  // namespace attendant::kernels::cpu
