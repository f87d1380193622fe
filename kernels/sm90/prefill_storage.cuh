// Shared memory of a prefill block, and places in its rings.
#pragma once

#include <cstdint>

#include "kernels/sm90/tile_info.cuh"

namespace attendant::kernels::sm90 {

inline constexpr int kTileSlots = 2;
inline constexpr int kLoaders = 2;
inline constexpr int kSharedMemoryPerBlock = 232448;  // 227 KiB

// Tiles in 128-byte swizzle: 64 columns of a row are 128 bytes, the next 64
// columns follow after all rows.
template <typename Shape>
struct alignas(1024) SharedStorage {
  static constexpr int kQBytes = Shape::kTileQ * Shape::kHeadDimQk * 2;
  static constexpr int kKBytes = Shape::kTileKv * Shape::kHeadDimQk * 2;
  static constexpr int kVBytes = Shape::kTileKv * Shape::kHeadDimV * 2;
  alignas(1024) uint8_t q[Shape::kQStages][kQBytes];
  alignas(1024) uint8_t k[Shape::kKvStages][kKBytes];
  alignas(1024) uint8_t v[Shape::kKvStages][kVBytes];
  TileInfo tiles[kTileSlots];
  uint64_t tile_full[kTileSlots], tile_empty[kTileSlots];
  uint64_t q_full[Shape::kQStages], q_empty[Shape::kQStages];
  uint64_t k_full[Shape::kKvStages], k_empty[Shape::kKvStages];
  uint64_t v_full[Shape::kKvStages], v_empty[Shape::kKvStages];
  uint64_t v_arrived[Shape::kKvStages];  // repair only
};

// A place in a ring of kStages: stage and phase parity.
template <int kStages>
struct RingPlace {
  uint32_t stage = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void Advance() {
    if constexpr (kStages == 1) {
      phase ^= 1;
    } else if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

template <int kStages>
__device__ __forceinline__ uint32_t At(uint32_t first_barrier,
                                       const RingPlace<kStages>& place) {
  return first_barrier + 8 * place.stage;
}

}  // namespace attendant::kernels::sm90
