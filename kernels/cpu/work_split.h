// How one sequence's work is cut. What decides a row's bits (form, chunk) is a
// pure function of whole_len_q, len_kv, whole head counts and head sizes; what
// only spreads work (rows_per_task, heads_per_task) may follow the number of
// threads.
#pragma once

#include <cstdint>

#include "kernels/problem.h"

namespace attendant::kernels::cpu {

enum class Form { kTile, kDecode };

// Rows of Q that share a KV head are counted as one list: row r is query row
// r / group_size of the group's head r % group_size.
struct WorkSplit {
  Form form = Form::kTile;
  int64_t rows = 0;           // len_q * group_size
  int64_t rows_per_task = 0;  // kDecode: all rows
  int64_t row_tasks = 0;
  int64_t heads_per_task = 1;  // KV heads; 1 or all
  int64_t chunk = 0;           // keys of one split, a multiple of kKeyBlock
  int64_t splits = 1;          // of len_kv, merged in index order
};

WorkSplit SplitWork(const AttentionProblem& problem,
                    const SequenceBounds& sequence, int num_threads);

}  // namespace attendant::kernels::cpu
