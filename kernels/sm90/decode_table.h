// Shapes of the decode kernels, readable by the host.
#pragma once

#include <cstdint>

namespace attendant::kernels::sm90 {

// kTileQ packed rows (64 a warpgroup), key blocks of kTileKv: a stage of K and
// one of V are 32 KiB together, and what two (one) blocks on a multiprocessor
// have in flight covers the memory's latency.
//
// Registers: a multiprocessor's four partitions hold 512 a lane each. A whole
// warpgroup produces (a lone fifth warp would leave the others 168), and hands
// its registers to the consumers.
template <int kHeadDim_, int kTileKv_, int kWarpgroups_, int kStages_,
          int kBlocksPerSm_, int kConsumerRegisters_, int kProducerRegisters_>
struct DecodeShape {
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kTileKv = kTileKv_;
  static constexpr int kWarpgroups = kWarpgroups_;
  static constexpr int kTileQ = 64 * kWarpgroups_;
  static constexpr int kStages = kStages_;
  static constexpr int kBlocksPerSm = kBlocksPerSm_;
  static constexpr int kConsumerRegisters = kConsumerRegisters_;
  static constexpr int kProducerRegisters = kProducerRegisters_;
  static constexpr int kThreads = 128 * (kWarpgroups_ + 1);
  // Registers of two accumulators beside the scores; at 256 there is room for
  // one only, so every chunk goes through memory.
  static constexpr bool kFolds = kHeadDim_ <= 128;
};

using Decode64 = DecodeShape<64, 128, 1, 3, 2, 216, 40>;
using Decode64Wide = DecodeShape<64, 128, 2, 6, 1, 232, 40>;
using Decode128 = DecodeShape<128, 64, 1, 3, 2, 216, 40>;
using Decode128Wide = DecodeShape<128, 64, 2, 6, 1, 232, 40>;
using Decode256 = DecodeShape<256, 64, 1, 3, 1, 240, 40>;
using Decode256Wide = DecodeShape<256, 64, 2, 2, 1, 232, 40>;

enum class DecodeClass : uint8_t { k64, k128, k256 };
inline constexpr int kNumDecodeClasses = 3;

struct DecodeClassRow {
  int head_dim;
  int tile_kv;
  bool folds;
};
inline constexpr DecodeClassRow kDecodeClasses[kNumDecodeClasses] = {
    {Decode64::kHeadDim, Decode64::kTileKv, Decode64::kFolds},
    {Decode128::kHeadDim, Decode128::kTileKv, Decode128::kFolds},
    {Decode256::kHeadDim, Decode256::kTileKv, Decode256::kFolds},
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
