// What the mask tensor says about single positions.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/cpu/row_output.h"
#include "kernels/problem.h"

namespace attendant::kernels::cpu {

// The mask's entries of one (row, head): position of key 0.
inline int64_t MaskRowStart(const AttentionTask& task, int64_t r) {
  const MaskView& mask = task.problem->mask;
  const SequenceBounds& sequence = task.sequence();
  const int64_t row =
      task.query_row(r) + (mask.padded_positions ? sequence.q_begin : 0);
  return task.b * mask.batch_stride + task.query_head(r) * mask.head_stride +
         row * mask.row_stride;
}

// Entry of key `key` behind the start of its row: its index in the row.
inline int64_t MaskKey(const AttentionTask& task, int64_t key) {
  return key +
         (task.problem->mask.padded_positions ? task.sequence().kv_begin : 0);
}

// What is added to S: the additive mask, or 0 / -inf of a boolean one.
inline float MaskBias(const MaskView& mask, int64_t row_start, int64_t key) {
  const auto* bytes = static_cast<const uint8_t*>(mask.data);
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  switch (mask.kind) {
    case MaskKind::kNone:
      return 0.0f;
    case MaskKind::kBoolBytes:
      return bytes[row_start + key] != 0 ? 0.0f : kHidden;
    case MaskKind::kBoolBits:
      return (bytes[row_start + key / 8] >> (key % 8) & 1) != 0 ? 0.0f
                                                                : kHidden;
    case MaskKind::kAdditive:
      return LoadAsFloat(mask.data, mask.dtype, row_start + key);
  }
  return 0.0f;
}

// Bounds, causality, window and a boolean mask; an additive -inf hides nothing.
inline bool IsVisible(const AttentionTask& task, int64_t r, int64_t key) {
  const MaskView& mask = task.problem->mask;
  const KeyRange range =
      VisibleKeys(*task.problem, task.sequence(), task.query_row(r));
  if (key < range.begin || key >= range.end) return false;
  return mask.kind == MaskKind::kAdditive ||
         MaskBias(mask, MaskRowStart(task, r), MaskKey(task, key)) == 0.0f;
}

// True if S needs more than its scale before softmax.
inline bool HasGeneralScores(const AttentionProblem& problem) {
  return problem.softcap > 0 || !problem.alibi_slopes.empty() ||
         problem.mask.kind != MaskKind::kNone;
}

inline float SlopeOf(const AttentionTask& task, int64_t r) {
  const AttentionProblem& problem = *task.problem;
  return problem.alibi_slopes.empty()
             ? 0.0f
             : problem.alibi_slopes[task.b * problem.alibi_batch_stride +
                                    task.query_head(r)];
}

}  // namespace attendant::kernels::cpu
