// The tile classes: shapes, stages and registers, readable by the host.
#pragma once

#include <cstdint>

namespace attendant::kernels::sm90 {

inline constexpr int kWarpgroupRows = 64;

// kTileQ = 64 rows a consumer warpgroup. Key blocks of kTileKv.
template <int kHeadDimQk_, int kHeadDimV_, int kTileKv_, int kWarpgroups_,
          int kKvStages_, int kQStages_, int kConsumerRegisters_,
          int kProducerRegisters_>
struct TileShape {
  static constexpr int kHeadDimQk = kHeadDimQk_;
  static constexpr int kHeadDimV = kHeadDimV_;
  static constexpr int kTileKv = kTileKv_;
  static constexpr int kWarpgroups = kWarpgroups_;
  static constexpr int kTileQ = kWarpgroupRows * kWarpgroups_;
  static constexpr int kKvStages = kKvStages_;
  static constexpr int kQStages = kQStages_;
  static constexpr int kConsumerRegisters = kConsumerRegisters_;
  static constexpr int kProducerRegisters = kProducerRegisters_;
  static constexpr int kThreads = 128 * (kWarpgroups_ + 1);
};

// 64: three warpgroups, since exponentials take as long as the products.
using Tile64 = TileShape<64, 64, 128, 3, 4, 2, 160, 32>;
// Score modifications need registers that three warpgroups do not have.
using Tile64ScoreMod = TileShape<64, 64, 128, 2, 4, 2, 232, 40>;
using Tile128 = TileShape<128, 128, 128, 2, 2, 2, 232, 40>;
// 192 and 256: key blocks as long as two stages beside Q allow.
using Tile192 = TileShape<192, 192, 112, 2, 2, 1, 232, 40>;
using Tile192x128 = TileShape<192, 128, 128, 2, 2, 1, 232, 40>;
using Tile256 = TileShape<256, 256, 80, 2, 2, 1, 232, 40>;

enum class TileClass : uint8_t { k64, k128, k192x128, k192, k256 };
inline constexpr int kNumTileClasses = 5;

struct TileClassRow {
  int head_dim_qk;
  int head_dim_v;
  int tile_kv;
  int tile_q;            // plain
  int tile_q_score_mod;  // softcap, ALiBi, scale <= 0
};

template <typename Plain, typename ScoreMod>
constexpr TileClassRow RowOf() {
  static_assert(Plain::kTileKv == ScoreMod::kTileKv);
  return {Plain::kHeadDimQk, Plain::kHeadDimV, Plain::kTileKv, Plain::kTileQ,
          ScoreMod::kTileQ};
}

// By TileClass.
inline constexpr TileClassRow kTileClasses[kNumTileClasses] = {
    RowOf<Tile64, Tile64ScoreMod>(),   RowOf<Tile128, Tile128>(),
    RowOf<Tile192x128, Tile192x128>(), RowOf<Tile192, Tile192>(),
    RowOf<Tile256, Tile256>(),
};

// The smallest class that holds both head sizes (each 1..256).
constexpr TileClass TileClassOf(int64_t head_dim_qk, int64_t head_dim_v) {
  for (int i = 0; i < kNumTileClasses; ++i) {
    if (head_dim_qk <= kTileClasses[i].head_dim_qk &&
        head_dim_v <= kTileClasses[i].head_dim_v) {
      return static_cast<TileClass>(i);
    }
  }
  return TileClass::k256;
}

}  // namespace attendant::kernels::sm90
