#include "kernels/cpu/work_split.h"

#include <algorithm>

#include "kernels/cpu/simd_kernels.h"

namespace attendant::kernels::cpu {
namespace {

// Tasks that one sequence should offer, if its keys must be split for it.
constexpr int64_t kWantedTasks = 64;
constexpr int64_t kMinChunk = 4 * kKeyBlock;
// More splits would need more memory for partial results than they save time.
constexpr int64_t kMaxDecodeSplits = 16;
constexpr int64_t kMaxTileSplits = 8;
// Row tiles that share one packing of K and V.
constexpr int64_t kMaxTilesPerTask = 4;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

WorkSplit SplitWork(const AttentionProblem& problem,
                    const SequenceBounds& sequence, int num_threads) {
  const int64_t group = problem.group_size();
  const int64_t kv_heads = std::max<int64_t>(1, problem.whole_num_kv_heads);
  WorkSplit split;
  split.rows = sequence.len_q * group;
  const int64_t whole_rows = sequence.whole_len_q * group;
  split.form = whole_rows <= kMaxDecodeRows ? Form::kDecode : Form::kTile;

  const int64_t whole_tasks = kv_heads * CeilDiv(whole_rows, kMaxTileRows);
  const int64_t max_splits =
      split.form == Form::kDecode ? kMaxDecodeSplits : kMaxTileSplits;
  const int64_t wanted = std::clamp<int64_t>(
      kWantedTasks / std::max<int64_t>(1, whole_tasks), 1, max_splits);
  split.chunk =
      std::max(kMinChunk, CeilDiv(CeilDiv(sequence.len_kv, wanted), kKeyBlock) *
                              kKeyBlock);
  split.splits = std::max<int64_t>(1, CeilDiv(sequence.len_kv, split.chunk));

  split.rows_per_task = split.rows;
  if (split.form == Form::kTile) {
    const int64_t tiles = CeilDiv(split.rows, kMaxTileRows);
    // Four tasks for each thread, if the heads do not give them.
    const int64_t parts =
        CeilDiv(4 * num_threads, problem.batch * problem.num_kv_heads + 1);
    const int64_t tiles_per_task =
        split.splits > 1
            ? 1
            : std::clamp<int64_t>(tiles / parts, 1, kMaxTilesPerTask);
    split.rows_per_task = tiles_per_task * kMaxTileRows;
  }
  split.row_tasks =
      split.rows == 0 ? 0 : CeilDiv(split.rows, split.rows_per_task);
  return split;
}

}  // namespace attendant::kernels::cpu
