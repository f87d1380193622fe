// Shared memory of a decode block for few packed rows. See decode_few.cuh.
#pragma once

#include <cstdint>

#include "kernels/sm90/decode_table.h"

namespace attendant::kernels::sm90 {

template <typename Shape>
struct alignas(1024) DecodeFewStorage {
  static constexpr int kTileBytes = Shape::kTileKv * Shape::kHeadDim * 2;
  alignas(1024) uint8_t k[Shape::kStages][kTileBytes];
  alignas(1024) uint8_t v[Shape::kStages][kTileBytes];
  // Each warp's O, maxima and sums, when a chunk ends. The paddings spread rows
  // over the banks.
  alignas(16) float merge_o[Shape::kWarps][Shape::kRows][Shape::kHeadDim + 4];
  float2 merge_ml[Shape::kWarps][Shape::kRows];
  alignas(16) uint16_t q[2][Shape::kRows][Shape::kHeadDim + 8];
  uint64_t k_full[Shape::kStages], v_full[Shape::kStages];
  uint64_t empty[Shape::kStages];
  uint64_t item_full[2], item_empty[2];
  uint64_t q_full[2], q_empty[2];
  uint64_t merge_empty;
  int32_t item[2];  // of the launch; -1 = no more
  int32_t is_last;  // whom the block meets is done, see FewMeeting
};

}  // namespace attendant::kernels::sm90
