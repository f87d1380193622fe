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

// The heads of a key fill its row, and the rows lie one behind the other.
bool HasHeadsSideBySide(const InputTensor& tensor, int64_t heads,
                        int64_t head_dim) {
  return tensor.head_stride == head_dim &&
         tensor.row_stride == heads * head_dim;
}

// All heads of a key at once read memory in its order; some of them would be
// slower than one. Four tasks for each thread must be left. Sums outside of
// registers cost 16-bit types more than that gains.
int64_t HeadsPerTask(const AttentionProblem& problem, int64_t splits,
                     int num_threads) {
  const int64_t heads = problem.num_kv_heads;
  const bool together =
      problem.dtype == DataType::kFloat32 && heads <= kMaxDecodeHeads &&
      problem.batch * splits >= 4 * num_threads &&
      HasHeadsSideBySide(problem.k, heads, problem.head_dim) &&
      HasHeadsSideBySide(problem.v, heads, problem.head_dim_v);
  return together ? std::max<int64_t>(1, heads) : 1;
}

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
  if (split.form == Form::kDecode) {
    split.heads_per_task = HeadsPerTask(problem, split.splits, num_threads);
  }
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
