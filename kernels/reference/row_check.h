// Whether rows of an answer are right, by the tolerance of the contract:
//   max |O - O64| <= 2 max |O_plain - O64| + 1e-5 max |V|, over the rows;
//   |LSE - LSE64| <= 1e-3 (16-bit inputs) or 1e-5 max(1, |LSE|) (fp32).
// Where the plain implementation was luckier than half a unit of the largest O,
// that half unit stands for its error; LSE may be off by its own rounding. Not
// judged: rows whose scores fp32 does not hold to 1e-4 (16-bit inputs: 1e-3;
// they overflow, or are so large that the order of adding decides), and those
// whose |V| times keys it does not hold; what lies below fp32's least normal
// number may count as 0. For programs that check themselves: costs a pass over
// the keys of each row.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/problem.h"

namespace attendant::kernels::reference {

// Row `row` (from its sequence's first) of query head `head` of sequence `b`.
struct AnswerRow {
  int64_t b = 0, head = 0, row = 0;
};

struct RowVerdict {
  // The largest error over what is allowed; above 1 the answer is wrong.
  // Infinite where NaN or infinity stand in other places than they should.
  double worst = 0;
  AnswerRow where;       // of the largest
  bool in_lse = false;   // it is an error of LSE, not of O
  double error = 0;      // there
  double tolerance = 0;  // there

  // "O of batch 0 head 1 row 2 is off by 0.5, allowed 0.01".
  std::string Describe() const;
};

// `problem` with its answer in out (and lse, if asked for), all in host memory.
// Rows of one KV head should stand together: its K and V are read once then.
RowVerdict CheckRows(const AttentionProblem& problem,
                     std::span<const AnswerRow> rows);

// Rows that stand for the whole problem: of up to `heads` pairs of sequence and
// query head (the first, the last, and others drawn by `seed`), up to `rows`
// rows each, the first and the last among them. Sorted for CheckRows.
std::vector<AnswerRow> ChooseRows(const AttentionProblem& problem,
                                  int64_t heads, int64_t rows, uint64_t seed);

}  // namespace attendant::kernels::reference
