// Scratch of the tile form: what lies in it, and one tile of rows.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/simd_kernels.h"
#include "kernels/problem.h"

namespace attendant::kernels::cpu {

inline int64_t AlignUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Bytes between panels of packed V: without them, a row's places in all panels
// would share one set of the first cache where panels are 4 KB.
inline constexpr int64_t kPanelGap = 64;

// Every part in floats and a multiple of 16, so that all are aligned.
struct TileLayout {
  int64_t rows;              // of one tile, at most
  int64_t tiles;             // of a task, at most
  int64_t q_pitch, o_pitch;  // of one tile
  int64_t k_pack, v_pack, s, bias, staging, per_row;

  TileLayout(const AttentionProblem& problem, int64_t rows_per_task)
      : rows(kMaxTileRows),
        tiles((rows_per_task + kMaxTileRows - 1) / kMaxTileRows),
        q_pitch(AlignUp(problem.head_dim, kLanePadding) * rows),
        o_pitch(AlignUp(problem.head_dim_v, kLanePadding) * rows),
        k_pack(kKeyBlock * AlignUp(problem.head_dim, kLanePadding)),
        v_pack((kKeyBlock + kPanelGap / kMinPanel / sizeof(float)) *
               AlignUp(problem.head_dim_v, kLanePadding)),
        s(kKeyBlock * rows),
        bias(problem.mask.kind == MaskKind::kNone ? 0 : kKeyBlock * rows),
        staging(rows * (AlignUp(std::max(problem.head_dim, problem.head_dim_v),
                                kLanePadding) +
                        2 * kLanePadding)),
        per_row(rows) {}

  // max and sum of each tile; alpha, block maximum, lo, hi, diagonal, slopes.
  int64_t total() const {
    return tiles * (q_pitch + o_pitch + 2 * per_row) + k_pack + v_pack + s +
           bias + staging + 6 * per_row;
  }
};

// One tile of rows and what it has summed so far.
struct Tile {
  int64_t first_row;
  int rows;
  int vecs;
  float* q;
  float* o;
  float* max;
  float* sum;
  int64_t key_begin, key_end;  // of all its rows together
};

}  // namespace attendant::kernels::cpu
