// The compile-time shape of one forward kernel.
#pragma once

#include "kernels/sm80/tile_table.h"

namespace attendant::kernels::sm80 {

template <typename ElementType, int kClass, bool kIsGeneral>
struct Traits {
  using Element = ElementType;
  static constexpr TileShape kTile = Tile(kClass, kIsGeneral);
  static constexpr bool kGeneral = kIsGeneral;
  static constexpr int kHeadDim = kTile.head_dim;
  static constexpr int kKeys = kTile.keys;
  static constexpr int kWarpRows = kTile.warp_rows;
  static constexpr int kThreads = kTile.threads();
  static constexpr int kMinCtas = kTile.min_ctas;
  static constexpr int kPitch = 2 * kHeadDim;        // bytes of a row
  static constexpr int kSlotBytes = kPitch * kKeys;  // of a K or V tile
  static constexpr int kFrags = kWarpRows / 16;      // m16 fragments of a warp
};

// A thread's part of O and of the softmax: rows lane/4 and lane/4 + 8 of each
// m16 fragment, columns 8n + 2 * (lane % 4) and the next.
template <typename T>
struct RowState {
  float o[T::kFrags][T::kHeadDim / 8][4];  // sum of p V, unnormalised
  float m[T::kFrags][2];  // largest score (online_softmax.cuh); -inf = none
  float l[T::kFrags][2];  // sum of p over this thread's own columns
};

template <typename T>
struct Scores {
  float s[T::kFrags][T::kKeys / 8][4];
};

}  // namespace attendant::kernels::sm80
