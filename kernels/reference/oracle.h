// The oracle: attention in double precision, materialised row by row, written
// to be read. Tests compare every backend with it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/problem.h"

namespace attendant::kernels::reference {

struct OracleResult {
  // [batch, rows_q, num_q_heads, head_dim_v], contiguous; 0 in uncovered rows.
  std::vector<double> out;
  // [batch, num_q_heads, rows_q]; -inf in uncovered rows.
  std::vector<double> lse;
};

// All pointers of `problem` are host memory; out and lse are ignored. THD
// problems (HasPackedRows) give out as [1, rows_q, ...]. `progress`, if given,
// is told now and then which share (0..1) of the heads is done.
OracleResult Oracle(const AttentionProblem& problem,
                    const std::function<void(double)>& progress = {});

// The plain same-precision implementation: S and softmax in fp32, P and O
// rounded once to the input's dtype, no tiling. Writes problem.out and lse,
// uncovered rows too (0 and -inf). What tolerances are measured against.
void Plain(const AttentionProblem& problem);

// Plain without the uncovered rows: what a kernel writes, no more.
void PlainSequences(const AttentionProblem& problem);

// O = 0 and LSE = -inf in every stored row: what the owner of the output does
// before a launch if HasUncoveredRows.
void FillEmptyRows(const AttentionProblem& problem);

}  // namespace attendant::kernels::reference
