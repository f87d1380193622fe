#include "kernels/row_cut.h"

#include <algorithm>

#include "kernels/base/check.h"

namespace attendant::kernels {

AttentionProblem CutRows(const AttentionProblem& problem, int64_t row_begin,
                         int64_t row_end) {
  ATTENDANT_CHECK(row_begin % kRowCutStep == 0 && !problem.HasPackedRows());
  AttentionProblem part = problem;
  for (SequenceBounds& sequence : part.sequences) {
    ATTENDANT_CHECK(sequence.q_begin == 0);
    const int64_t end = std::min(row_end, sequence.len_q);
    sequence.q_begin = std::min(row_begin, sequence.len_q);
    sequence.len_q = std::max<int64_t>(0, end - sequence.q_begin);
    sequence.diagonal_shift += sequence.q_begin;
  }
  return part;
}

}  // namespace attendant::kernels
