// What both halves of the decode form on AMX are built of: tiles of rows of K
// or V as they lie in memory. Only for files that run on such machines.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/decode_fetch.h"
#include "kernels/cpu/simd_kernels.h"

#define ATTENDANT_AMX_DECODE \
  __attribute__((            \
      target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")))

namespace attendant::kernels::cpu {

inline constexpr int kDecodeStep = 32;  // bf16 numbers in a row of a tile
inline constexpr int kMaxDecodeSteps = 256 / kDecodeStep;

// 16 rows of bf16 numbers.
struct RowTile {
  const uint16_t* rows;
  int64_t pitch;  // in elements

  // Dims [32 * step, 32 * step + 32) into a tile.
  template <class Tiles, int kTile>
  void Load(int64_t step) const {
    Tiles::template Load<kTile>(rows + step * kDecodeStep,
                                pitch * sizeof(uint16_t));
  }
};

struct RowTileCopy {
  alignas(64) uint16_t rows[kTileRows][kMaxDecodeSteps * kDecodeStep];
};

// Rows [n, n + 16) of `rows`, of `dims` dims each. Nothing behind row `end` is
// read: a tile that is not whole is `copy`, with zeros.
inline RowTile TileOfRows(const void* rows, int64_t pitch, int n, int end,
                          int64_t dims, RowTileCopy* copy) {
  const auto* first = static_cast<const uint16_t*>(rows) + n * pitch;
  if (n + kTileRows <= end) return {first, pitch};
  std::memset(copy, 0, sizeof(*copy));
  for (int i = 0; i < std::clamp(end - n, 0, kTileRows); ++i) {
    std::memcpy(copy->rows[i], first + i * pitch, dims * sizeof(uint16_t));
  }
  return {copy->rows[0], kMaxDecodeSteps * kDecodeStep};
}

// 16 rows that are fetched while a tile is worked on.
struct TileAhead {
  const char* rows;
  int64_t pitch;  // bytes

  // The share of step `step` of `steps`: whole rows, line by line, in the order
  // of memory.
  __attribute__((always_inline)) void Fetch(int64_t step, int64_t steps) const {
    const int64_t end = kTileRows * (step + 1) / steps;
#pragma GCC unroll 16
    for (int64_t row = kTileRows * step / steps; row < end; ++row) {
#pragma GCC unroll 4
      for (int64_t line = 0; line < steps; ++line) {
        // By assembler: the compiler moves its own away from the tiles' loads.
        asm volatile("prefetcht0 (%0)"
                     :
                     : "r"(rows + row * pitch + line * kTileBytes));
      }
    }
  }
};

}  // namespace attendant::kernels::cpu
