// Shapes of the decode kernels, readable by the host.
#pragma once

#include <cstdint>

namespace attendant::kernels::sm90 {

// kTileQ packed rows (64 a warpgroup), key blocks of kTileKv; what the stages
// of two (one) blocks on a multiprocessor have in flight covers the memory's
// latency. 128 rows need blocks of 128 keys at d 128, so that the products of
// one warpgroup hide the exponentials of the other.
//
// Registers: a multiprocessor's four partitions hold 512 a lane each. A whole
// warpgroup produces (a lone fifth warp would leave the others 168), and hands
// its registers to the consumers.
template <int kHeadDim_, int kTileKv_, int kWarpgroups_, int kStages_,
          int kBlocksPerSm_, int kConsumerRegisters_, int kProducerRegisters_>
struct DecodeShape {
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kTileKv = kTileKv_;
  static constexpr int kBoxRows = 64;
  static constexpr int kWarpgroups = kWarpgroups_;
  static constexpr int kTileQ = 64 * kWarpgroups_;
  static constexpr int kStages = kStages_;
  static constexpr int kBlocksPerSm = kBlocksPerSm_;
  static constexpr int kConsumerRegisters = kConsumerRegisters_;
  static constexpr int kProducerRegisters = kProducerRegisters_;
  static constexpr int kThreads = 128 * (kWarpgroups_ + 1);
};

using Decode64 = DecodeShape<64, 128, 1, 3, 2, 216, 40>;
using Decode64Wide = DecodeShape<64, 128, 2, 6, 1, 232, 40>;
using Decode128 = DecodeShape<128, 64, 1, 3, 2, 216, 40>;
using Decode128Wide = DecodeShape<128, 128, 2, 3, 1, 232, 40>;
using Decode256 = DecodeShape<256, 64, 1, 3, 1, 240, 40>;
using Decode256Wide = DecodeShape<256, 64, 2, 2, 1, 232, 40>;

enum class DecodeClass : uint8_t { k64, k128, k256 };
inline constexpr int kNumDecodeClasses = 3;

struct DecodeClassRow {
  int head_dim;
  int box_rows;  // of a copy: key blocks are one or more
  int tile_kv;
  int tile_kv_wide;
};
inline constexpr DecodeClassRow kDecodeClasses[kNumDecodeClasses] = {
    {Decode64::kHeadDim, Decode64::kBoxRows, Decode64::kTileKv,
     Decode64Wide::kTileKv},
    {Decode128::kHeadDim, Decode128::kBoxRows, Decode128::kTileKv,
     Decode128Wide::kTileKv},
    {Decode256::kHeadDim, Decode256::kBoxRows, Decode256::kTileKv,
     Decode256Wide::kTileKv},
};

constexpr DecodeClass DecodeClassOf(int64_t head_dim, int64_t head_dim_v) {
  const int64_t larger = head_dim > head_dim_v ? head_dim : head_dim_v;
  if (larger <= 64) return DecodeClass::k64;
  return larger <= 128 ? DecodeClass::k128 : DecodeClass::k256;
}

// Floats of one partial slot: kTileQ rows of O, their maxima (log2 units) and
// their sums.
constexpr int64_t PartialSlotFloats(int head_dim, int warpgroups) {
  return int64_t{64} * warpgroups * (head_dim + 2);
}

}  // namespace attendant::kernels::sm90
