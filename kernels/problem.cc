#include "kernels/problem.h"

#include <cstddef>

#include "kernels/base/check.h"

namespace attendant::kernels {
namespace {

const void* Advance(const void* data, int64_t elements, int64_t element_bytes) {
  if (data == nullptr) return nullptr;
  return static_cast<const std::byte*>(data) + elements * element_bytes;
}

InputTensor Shift(InputTensor tensor, DataType dtype, int64_t b, int64_t h) {
  tensor.data =
      Advance(tensor.data, b * tensor.batch_stride + h * tensor.head_stride,
              SizeOf(dtype));
  return tensor;
}

// Sum of VisibleKeys over the rows of one sequence, in closed form: the bounds
// are linear in the row and clamped to [0, len_kv].
double VisiblePairs(const AttentionProblem& problem,
                    const SequenceBounds& sequence) {
  // Sum over rows of min(max(i + offset, 0), len_kv).
  const double rows = static_cast<double>(sequence.len_q);
  const auto clamped_sum = [&](int64_t offset) {
    const double keys = static_cast<double>(sequence.len_kv);
    const double first = std::clamp<double>(-static_cast<double>(offset), 0,
                                            rows);  // rows below are 0
    const double last = std::clamp<double>(keys - static_cast<double>(offset),
                                           first, rows);  // above: len_kv
    const double middle = last - first;
    return middle * (first + static_cast<double>(offset)) +
           middle * (middle - 1) / 2 + (rows - last) * keys;
  };
  double end = rows * static_cast<double>(sequence.len_kv);
  int64_t right = kWindowOpen;
  if (problem.causal) right = 0;
  if (problem.window_right != kWindowOpen && !problem.causal) {
    right = problem.window_right;
  }
  if (right != kWindowOpen) {
    end = clamped_sum(sequence.diagonal_shift + right + 1);
  }
  double begin = 0;
  if (problem.window_left != kWindowOpen) {
    begin = clamped_sum(sequence.diagonal_shift - problem.window_left);
  }
  return std::max(0.0, end - begin);
}

}  // namespace

bool HasUncoveredRows(const AttentionProblem& problem) {
  if (problem.batch == 0 || problem.sequences.empty()) {
    return problem.rows_q > 0;
  }
  if (problem.HasPackedRows()) {
    int64_t covered = 0;
    for (const SequenceBounds& sequence : problem.sequences) {
      covered += sequence.len_q;
    }
    return covered != problem.rows_q;
  }
  for (const SequenceBounds& sequence : problem.sequences) {
    if (sequence.len_q != problem.rows_q) return true;
  }
  return false;
}

double ForwardFlops(const AttentionProblem& problem) {
  double pairs = 0;
  if (problem.sequences.size() == 1) {
    pairs = static_cast<double>(problem.batch) *
            VisiblePairs(problem, problem.sequences[0]);
  } else {
    for (const SequenceBounds& sequence : problem.sequences) {
      pairs += VisiblePairs(problem, sequence);
    }
  }
  return 2.0 * static_cast<double>(problem.head_dim + problem.head_dim_v) *
         static_cast<double>(problem.num_q_heads) * pairs;
}

AttentionProblem CutProblem(const AttentionProblem& problem,
                            int64_t batch_begin, int64_t batch_end,
                            int64_t kv_head_begin, int64_t kv_head_end) {
  ATTENDANT_CHECK(0 <= batch_begin && batch_begin <= batch_end &&
                  batch_end <= problem.batch);
  ATTENDANT_CHECK(0 <= kv_head_begin && kv_head_begin <= kv_head_end &&
                  kv_head_end <= problem.num_kv_heads);
  AttentionProblem part = problem;
  const int64_t group = problem.group_size();
  const int64_t q_head_begin = kv_head_begin * group;
  part.batch = batch_end - batch_begin;
  part.num_kv_heads = kv_head_end - kv_head_begin;
  part.num_q_heads = part.num_kv_heads * group;
  part.q = Shift(problem.q, problem.dtype, batch_begin, q_head_begin);
  part.k = Shift(problem.k, problem.dtype, batch_begin, kv_head_begin);
  part.v = Shift(problem.v, problem.dtype, batch_begin, kv_head_begin);
  part.out.data =
      const_cast<void*>(Advance(problem.out.data,
                                batch_begin * problem.out.batch_stride +
                                    q_head_begin * problem.out.head_stride,
                                SizeOf(problem.output_dtype)));
  if (problem.lse != nullptr) {
    part.lse = problem.lse + batch_begin * problem.lse_batch_stride +
               q_head_begin * problem.lse_head_stride;
  }
  if (problem.sequences.size() > 1) {
    part.sequences.assign(problem.sequences.begin() + batch_begin,
                          problem.sequences.begin() + batch_end);
  }
  if (!problem.alibi_slopes.empty()) {
    part.alibi_slopes = problem.alibi_slopes.subspan(
        batch_begin * problem.alibi_batch_stride + q_head_begin);
  }
  if (!problem.sinks.empty()) {
    part.sinks = problem.sinks.subspan(q_head_begin, part.num_q_heads);
  }
  if (problem.mask.kind != MaskKind::kNone) {
    const int64_t entry_bytes = problem.mask.kind == MaskKind::kAdditive
                                    ? SizeOf(problem.mask.dtype)
                                    : 1;
    part.mask.data = Advance(problem.mask.data,
                             batch_begin * problem.mask.batch_stride +
                                 q_head_begin * problem.mask.head_stride,
                             entry_bytes);
  }
  return part;
}

}  // namespace attendant::kernels
