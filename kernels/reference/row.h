// One row of attention, as the formula says it: the visible keys and their
// logits. `Real` is the precision of S and of the softmax: double for the
// oracle, float for the plain implementation.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/problem.h"

namespace attendant::kernels::reference {

// Row `row` (in the batch entry's own count) of head `head` of batch entry `b`.
template <typename Real>
void LoadRow(const InputTensor& tensor, DataType dtype, int64_t b, int64_t row,
             int64_t head, int64_t head_dim, Real* out) {
  const int64_t first = b * tensor.batch_stride + row * tensor.row_stride +
                        head * tensor.head_stride;
  for (int64_t d = 0; d < head_dim; ++d) {
    out[d] = LoadAsFloat(tensor.data, dtype, first + d);
  }
}

// K and V of one batch entry's KV head, [len_kv][head_dim] each.
template <typename Real>
struct KeysAndValues {
  std::vector<Real> k, v;

  KeysAndValues(const AttentionProblem& problem, int64_t b, int64_t kv_head) {
    const SequenceBounds& sequence = problem.sequence(b);
    k.resize(sequence.len_kv * problem.head_dim);
    v.resize(sequence.len_kv * problem.head_dim_v);
    for (int64_t j = 0; j < sequence.len_kv; ++j) {
      LoadRow(problem.k, problem.dtype, b, sequence.kv_begin + j, kv_head,
              problem.head_dim, &k[j * problem.head_dim]);
      LoadRow(problem.v, problem.dtype, b, sequence.kv_begin + j, kv_head,
              problem.head_dim_v, &v[j * problem.head_dim_v]);
    }
  }
};

template <typename Real>
Real Dot(const Real* a, const Real* b, int64_t size) {
  constexpr int kLanes = 8;  // separate sums, so that the compiler vectorises
  Real sums[kLanes] = {};
  int64_t d = 0;
  for (; d + kLanes <= size; d += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      sums[lane] += a[d + lane] * b[d + lane];
    }
  }
  Real sum = 0;
  for (; d < size; ++d) sum += a[d] * b[d];
  for (const Real lane : sums) sum += lane;
  return sum;
}

// Strides apply to positions; see MaskView.
inline int64_t MaskRow(const AttentionProblem& problem, int64_t b, int64_t head,
                       int64_t i) {
  const MaskView& mask = problem.mask;
  const int64_t row =
      mask.padded_positions ? problem.sequence(b).q_begin + i : i;
  return b * mask.batch_stride + head * mask.head_stride +
         row * mask.row_stride;
}

inline bool MaskAllows(const MaskView& mask, int64_t row, int64_t key) {
  const auto* bytes = static_cast<const uint8_t*>(mask.data);
  switch (mask.kind) {
    case MaskKind::kBoolBytes:
      return bytes[row + key] != 0;
    case MaskKind::kBoolBits:
      return (bytes[row + key / 8] >> (key % 8) & 1) != 0;
    case MaskKind::kNone:
    case MaskKind::kAdditive:
      return true;
  }
  return true;
}

// Row i of query head `head`: `keys` gets the visible keys in order, `logits`
// their S. `q` is the row itself, `k` the rows of the KV head.
template <typename Real>
void VisibleLogits(const AttentionProblem& problem, int64_t b, int64_t head,
                   int64_t i, const Real* q, const Real* k,
                   std::vector<int64_t>* keys, std::vector<Real>* logits) {
  const SequenceBounds& sequence = problem.sequence(b);
  const MaskView& mask = problem.mask;
  const int64_t mask_row = MaskRow(problem, b, head, i);
  const KeyRange range = VisibleKeys(problem, sequence, i);
  keys->clear();
  logits->clear();
  for (int64_t j = range.begin; j < range.end; ++j) {
    const int64_t mask_key = mask.padded_positions ? sequence.kv_begin + j : j;
    if (!MaskAllows(mask, mask_row, mask_key)) continue;
    Real s = Real{problem.softmax_scale} *
             Dot(q, k + j * problem.head_dim, problem.head_dim);
    if (problem.softcap > 0) {
      const Real cap = problem.softcap;
      s = cap * std::tanh(s / cap);
    }
    if (!problem.alibi_slopes.empty()) {
      const Real distance =
          static_cast<Real>(std::abs(i + sequence.diagonal_shift - j));
      const Real slope =
          problem.alibi_slopes[b * problem.alibi_batch_stride + head];
      s -= slope * distance;
    }
    if (mask.kind == MaskKind::kAdditive) {
      s += LoadAsFloat(mask.data, mask.dtype, mask_row + mask_key);
    }
    keys->push_back(j);
    logits->push_back(s);
  }
}

// Replaces logits by exp(S - max) over the sum, which counts the sink, and
// returns LSE, which does not. -inf: the row sees nothing (no key, or nothing
// but -inf); the weights are then 0. A NaN among the logits makes all NaN.
template <typename Real>
Real SoftmaxInPlace(const AttentionProblem& problem, int64_t head,
                    std::vector<Real>* logits) {
  constexpr Real kMinusInfinity = -std::numeric_limits<Real>::infinity();
  Real max = kMinusInfinity;
  for (const Real s : *logits) {
    if (s > max || std::isnan(s)) max = s;
    if (std::isnan(s)) break;
  }
  if (max == kMinusInfinity) {
    logits->assign(logits->size(), 0);
    return kMinusInfinity;
  }
  Real sum = 0;
  for (Real& s : *logits) {
    s = std::exp(s - max);
    sum += s;
  }
  Real denominator = sum;
  if (!problem.sinks.empty()) {
    denominator += std::exp(Real{problem.sinks[head]} - max);
  }
  for (Real& s : *logits) s /= denominator;
  return max + std::log(sum);
}

}  // namespace attendant::kernels::reference
