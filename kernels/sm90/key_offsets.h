// A sequence's bounds as the kernels read them: 32-bit offsets from a row to
// the keys that it sees.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/problem.h"
#include "kernels/sm90/kernel_params.h"

namespace attendant::kernels::sm90 {

// Keys to the right of the diagonal that a row sees, or kWindowOpen.
inline int64_t KeysRightOf(const AttentionProblem& problem) {
  return problem.causal ? 0 : problem.window_right;
}

// Row i sees keys [i + low, i + high) within [0, len_kv). What lies beyond
// every position is cut to kMaxPosition, so that sums fit 32 bits.
struct KeyOffsets {
  int32_t low;
  int32_t high;
  int32_t diagonal_shift;
};

inline KeyOffsets KeyOffsetsOf(const AttentionProblem& problem,
                               const SequenceBounds& bounds) {
  const auto clamp = [](int64_t offset) {
    return static_cast<int32_t>(
        std::clamp<int64_t>(offset, -kMaxPosition, kMaxPosition));
  };
  const auto size = [](int64_t window) {
    return std::min<int64_t>(window, kMaxPosition);
  };
  const int64_t right = KeysRightOf(problem);
  KeyOffsets offsets = {-kMaxPosition, kMaxPosition,
                        clamp(bounds.diagonal_shift)};
  if (right != kWindowOpen) {
    offsets.high = clamp(bounds.diagonal_shift + size(right) + 1);
  }
  if (problem.window_left != kWindowOpen) {
    offsets.low = clamp(bounds.diagonal_shift - size(problem.window_left));
  }
  return offsets;
}

}  // namespace attendant::kernels::sm90
