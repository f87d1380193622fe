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
          int kBlocksPerSm_, int kConsumerRegisters_, int kProducerRegisters_,
          bool kKeepsInShared_ = true>
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
  // The quad's chunks before the running one; else in scratch.
  static constexpr bool kKeepsInShared = kKeepsInShared_;
  static constexpr int kConsumers = 128 * kWarpgroups_;  // threads
  static constexpr int kThreads = kConsumers + 128;
  // What a block keeps in global memory, see KeptLevels.
  static constexpr int kScratchLevels = kKeepsInShared_ ? 2 : 3;
};

using Decode64 = DecodeShape<64, 128, 1, 2, 2, 216, 40>;
using Decode64Wide = DecodeShape<64, 128, 2, 5, 1, 232, 40>;
using Decode128 = DecodeShape<128, 64, 1, 2, 2, 216, 40>;
using Decode128Wide = DecodeShape<128, 128, 2, 2, 1, 232, 40>;
using Decode256 = DecodeShape<256, 64, 1, 2, 1, 240, 40>;
using Decode256Wide = DecodeShape<256, 64, 2, 2, 1, 232, 40, false>;

// Blocks merge in place where registers allow for the code of it; else the
// combine kernel does.
template <typename Shape, bool kModifies>
constexpr bool MayMerge() {
  return Shape::kHeadDim <= 128 && !kModifies;
}

inline constexpr int kMostMerged = 16;  // slots of a strand, by arrival
// Of a strand that its blocks merge by arrival, see ArrivalBoard.
inline constexpr int kArrivalWords = 16 + kMostMerged * kMostMerged;

// Threads of a block of the combine kernel: each folds 8 columns of a row.
inline constexpr int kCombineThreads = 256;
constexpr int CombineRows(int head_dim) {
  return kCombineThreads / (head_dim / 8);
}

// Few packed rows, at most kRows: eight warps take 16 keys each, the warps'
// halves taking turns at key blocks of 64; K and V are the larger operand of
// the warp-wide products.
template <int kHeadDim_, int kStages_>
struct DecodeFewShape {
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kStages = kStages_;
  static constexpr int kRows = 8;
  static constexpr int kTileKv = 64;
  static constexpr int kWarps = 8;
  static constexpr int kConsumers = 32 * kWarps;  // threads
  static constexpr int kThreads = kConsumers + 64;
};

// Of the shape with this head size: whether launches may have tails, see
// DecodeTails. At 256 they are unmeasured.
constexpr bool MayHaveTails(int head_dim) { return head_dim <= 128; }

using DecodeFew64 = DecodeFewShape<64, 12>;
using DecodeFew128 = DecodeFewShape<128, 5>;
using DecodeFew256 = DecodeFewShape<256, 2>;

// Chunks whose results are merged before they meet those of others.
inline constexpr int kFewOctet = 8;
inline constexpr int kFewGroup = 32;
inline constexpr int kSplitQuad = 4;  // more rows
inline constexpr int kSplitOctet = 8;

// What serves a sequence, by the packed rows of the whole request: few by
// warp-wide products (decode_few.cuh), more by warpgroup products, 64 or 128 a
// tile (decode_split_kv.cuh).
enum class DecodeWidth : uint8_t { kFew, k64, k128 };

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

// Floats of one partial slot: rows of O, their maxima (log2 units) and
// their sums.
constexpr int64_t PartialSlotFloats(int head_dim, int rows) {
  return int64_t{rows} * (head_dim + 2);
}

// Floats of one level of a block's scratch: `rows` rows of O, and (m, l) of
// each once for each of the four threads that share it.
constexpr int64_t ScratchFloats(int head_dim, int rows) {
  return int64_t{rows} * (head_dim + 8);
}

}  // namespace attendant::kernels::sm90
