// From running sums to O and LSE; merging of partial results.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/cpu/simd_kernels.h"
#include "kernels/problem.h"

namespace attendant::kernels::cpu {

// A part of the work of one (sequence, KV head): rows [row_begin, row_end) of
// the group's list (see WorkSplit) against keys [key_begin, key_end).
struct AttentionTask {
  const AttentionProblem* problem;
  int64_t b;
  int64_t kv_head;
  int64_t row_begin, row_end;
  int64_t key_begin, key_end;
  // Null: the keys are all; O and LSE are written. Else [row_end - row_begin]
  // rows of PartialPitch floats each: O not yet divided, maximum, sum.
  float* partial;
  // As LaunchContext's: what is left of the keys may be left out.
  const std::function<bool()>* unwanted = nullptr;

  bool IsUnwanted() const { return unwanted != nullptr && (*unwanted)(); }
  const SequenceBounds& sequence() const { return problem->sequence(b); }
  int64_t query_row(int64_t r) const { return r / problem->group_size(); }
  int64_t query_head(int64_t r) const {
    return kv_head * problem->group_size() + r % problem->group_size();
  }
};

inline int64_t PartialPitch(const AttentionProblem& problem) {
  return problem.head_dim_v + 2;
}

// Row r is done: `o` is the sum of P V and `sum` that of P, both relative to
// e^max. Writes O and LSE, or the partial result.
void FinishRow(const SimdKernels& simd, const AttentionTask& task, int64_t r,
               const float* o, float max, float sum);

// Merges `splits` partial results, each of task.row_end - row_begin rows, one
// behind the other, in index order, and writes O and LSE. `o` is scratch of
// head_dim_v floats.
void MergePartials(const SimdKernels& simd, const AttentionTask& task,
                   const float* partials, int64_t splits, float* o);

}  // namespace attendant::kernels::cpu
