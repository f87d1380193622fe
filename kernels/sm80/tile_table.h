// Tile shapes by head-size class, readable by host and device code.
//
// Rows of a warp share every K and V fragment it loads from shared memory, so
// 32 rows halve that traffic against 16. Accumulators take warp_rows *
// (head_dim + keys) / 32 of a thread's 255 registers: 192 with 32 rows at 128,
// 160 with 16 rows at 256, where 32 would not fit.
#pragma once

#include <cstdint>

namespace attendant::kernels::sm80 {

struct TileShape {
  int head_dim;  // class: serves max(head_dim, head_dim_v) up to this
  int warps;
  int warp_rows;  // 16 or 32
  int keys;       // N; never depends on anything but class and variant
  int min_ctas;   // per SM, as registers allow

  constexpr int rows() const { return warps * warp_rows; }
  constexpr int threads() const { return warps * 32; }
  // Bytes of `rows` rows of Q, K or V in shared memory.
  constexpr int64_t bytes(int rows) const {
    return int64_t{2} * head_dim * rows;
  }
};

inline constexpr int kNumClasses = 4;

// No masks but causal, window and lengths; scale > 0; copies of 16 bytes, head
// sizes multiples of 8.
inline constexpr TileShape kPlainTiles[kNumClasses] = {
    {.head_dim = 64, .warps = 4, .warp_rows = 32, .keys = 64, .min_ctas = 2},
    {.head_dim = 128, .warps = 4, .warp_rows = 32, .keys = 64, .min_ctas = 2},
    {.head_dim = 192, .warps = 8, .warp_rows = 16, .keys = 64, .min_ctas = 1},
    {.head_dim = 256, .warps = 8, .warp_rows = 16, .keys = 64, .min_ctas = 1},
};
// Everything. The score pass needs registers, so warps have 16 rows.
inline constexpr TileShape kGeneralTiles[kNumClasses] = {
    {.head_dim = 64, .warps = 8, .warp_rows = 16, .keys = 64, .min_ctas = 1},
    {.head_dim = 128, .warps = 8, .warp_rows = 16, .keys = 64, .min_ctas = 1},
    {.head_dim = 192, .warps = 8, .warp_rows = 16, .keys = 64, .min_ctas = 1},
    {.head_dim = 256, .warps = 8, .warp_rows = 16, .keys = 64, .min_ctas = 1},
};

constexpr const TileShape& Tile(int head_class, bool general) {
  return general ? kGeneralTiles[head_class] : kPlainTiles[head_class];
}

// Class of a pair of head sizes, 1..256.
constexpr int HeadClass(int64_t head_dim, int64_t head_dim_v) {
  const int64_t widest = head_dim > head_dim_v ? head_dim : head_dim_v;
  return static_cast<int>((widest - 1) / 64);
}

// How a launch lies in the shared memory of a device.
struct SharedLayout {
  int q_rows = 0;      // of the Q tile; a multiple of warp_rows
  int ring_slots = 0;  // K and V tiles, 2 or 4; 0 = does not fit
  int64_t bytes = 0;
};

// Static shared memory of the forward kernel, at most.
inline constexpr int64_t kStaticShared = 512;

// The deepest ring that lets the tile's CTAs share an SM, else the deepest one
// that fits. `optin`: bytes a block may opt into; an SM has 1 KiB more.
constexpr SharedLayout FitShared(const TileShape& tile, int q_rows,
                                 int64_t optin) {
  const int64_t reserved = 1024;  // by the driver, per block
  const int64_t share = (optin + reserved) / tile.min_ctas - reserved;
  const int64_t bounds[] = {share, optin};
  for (const int64_t bound : bounds) {
    for (int slots = 4; slots >= 2; slots -= 2) {
      const int64_t bytes = tile.bytes(q_rows + slots * tile.keys);
      if (bytes + kStaticShared <= bound) return {q_rows, slots, bytes};
    }
  }
  return {};
}

}  // namespace attendant::kernels::sm80
