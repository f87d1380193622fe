// Cuts a problem by query rows, beside CutProblem's cuts by batch and KV heads.
#pragma once

#include <cstdint>

#include "kernels/problem.h"

namespace attendant::kernels {

// Rows at which a sequence may be cut: every kernel's row tiles begin there.
inline constexpr int64_t kRowCutStep = 768;

// The part of `problem` with stored query rows [row_begin, row_end), where
// every sequence begins with row 0 and row_begin is a multiple of kRowCutStep;
// row_end too, unless it is rows_q. Not for packed rows. Answers are bitwise
// those of the whole; pointers stay the whole's.
AttentionProblem CutRows(const AttentionProblem& problem, int64_t row_begin,
                         int64_t row_end);

}  // namespace attendant::kernels
