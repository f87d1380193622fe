#include "server/engine/work_item.h"

#include <algorithm>

#include "kernels/row_cut.h"

namespace attendant::server {
namespace {

using kernels::AttentionProblem;

// Query and key rows and FLOPs of one batch entry, all heads.
struct EntryCost {
  int64_t rows_q = 0;
  int64_t rows_kv = 0;
  double flops = 0;
};

// A problem of one batch entry, whose sequence CostOf fills in.
AttentionProblem EntryOf(const AttentionProblem& problem) {
  AttentionProblem entry;
  entry.batch = 1;
  entry.num_q_heads = problem.num_q_heads;
  entry.head_dim = problem.head_dim;
  entry.head_dim_v = problem.head_dim_v;
  entry.causal = problem.causal;
  entry.window_left = problem.window_left;
  entry.window_right = problem.window_right;
  entry.sequences.resize(1);
  return entry;
}

EntryCost CostOf(const kernels::SequenceBounds& sequence,
                 AttentionProblem* entry) {
  entry->sequences[0] = sequence;
  return {sequence.len_q, sequence.len_kv, kernels::ForwardFlops(*entry)};
}

int64_t Bytes(const AttentionProblem& problem, const EntryCost& cost) {
  const int64_t input = kernels::SizeOf(problem.dtype);
  const int64_t output = kernels::SizeOf(problem.output_dtype);
  return cost.rows_q * problem.num_q_heads *
             (problem.head_dim * input + problem.head_dim_v * output) +
         cost.rows_kv * problem.num_kv_heads *
             (problem.head_dim + problem.head_dim_v) * input;
}

// Batch entry b alone, cut by heads into as few even pieces as the limits ask.
void CutHeads(const AttentionProblem& problem, int64_t b, const EntryCost& cost,
              int64_t max_bytes, double max_flops,
              std::vector<ItemRange>* items) {
  const int64_t heads = problem.num_kv_heads;
  const int64_t bytes = Bytes(problem, cost);
  const double pieces_wanted =
      std::max(static_cast<double>(bytes) / static_cast<double>(max_bytes),
               cost.flops / max_flops);
  const int64_t pieces = static_cast<int64_t>(
      std::clamp(pieces_wanted + 1, 1.0, static_cast<double>(heads)));
  for (int64_t piece = 0; piece < pieces; ++piece) {
    const int64_t begin = heads * piece / pieces;
    const int64_t end = heads * (piece + 1) / pieces;
    items->push_back({b, b + 1, begin, end, bytes * (end - begin) / heads,
                      cost.flops * static_cast<double>(end - begin) /
                          static_cast<double>(heads),
                      cost.rows_q});
  }
}

// True if entries may be cut by rows: they lie in q one after the other, all
// heads of a row together, and a sequence starts with its entry's first row.
bool RowsAreOuter(const AttentionProblem& problem) {
  return !problem.HasPackedRows() && problem.num_kv_heads > 0 &&
         problem.q.row_stride >= problem.num_q_heads * problem.q.head_stride &&
         problem.q.head_stride >= problem.head_dim &&
         problem.out.row_stride > problem.out.head_stride;
}

// Batch entry b alone, cut by query rows at borders that all kernels' tiles
// share. False if it is too short. No piece is larger than one before it: what
// the last input of a request in parts completes is left to compute and send.
bool CutRows(const AttentionProblem& problem, int64_t b, const EntryCost& cost,
             int64_t max_bytes, double max_flops,
             std::vector<ItemRange>* items) {
  constexpr int64_t kStep = kernels::kRowCutStep;
  const kernels::SequenceBounds& sequence = problem.sequence(b);
  if (sequence.len_q < 2 * kStep || sequence.q_begin != 0) return false;
  const int64_t steps = (sequence.len_q + kStep - 1) / kStep;
  const int64_t row_bytes =
      problem.num_q_heads *
      (problem.head_dim * kernels::SizeOf(problem.dtype) +
       problem.head_dim_v * kernels::SizeOf(problem.output_dtype));
  const double wanted =
      std::max(static_cast<double>(row_bytes * sequence.len_q) /
                   static_cast<double>(max_bytes),
               cost.flops / max_flops);
  const int64_t pieces = static_cast<int64_t>(
      std::clamp(wanted + 1, 1.0, static_cast<double>(steps)));
  if (pieces < 2) return false;
  const auto border = [&](int64_t piece) {
    return (steps / pieces * piece + std::min(piece, steps % pieces)) * kStep;
  };
  for (int64_t piece = 0; piece < pieces; ++piece) {
    const int64_t begin = border(piece);
    const int64_t end =
        piece + 1 == pieces ? problem.rows_q : border(piece + 1);
    items->push_back(
        {b, b + 1, 0, problem.num_kv_heads, Bytes(problem, cost) / pieces,
         cost.flops / static_cast<double>(pieces), end - begin, begin, end});
  }
  return true;
}

// `by_rows` may be tried before an entry is cut by heads.
std::vector<ItemRange> Cut(const AttentionProblem& problem, int64_t max_bytes,
                           double max_flops, bool by_rows) {
  std::vector<ItemRange> items;
  ItemRange run{0, 0, 0, problem.num_kv_heads};
  const auto end_run = [&](int64_t next) {
    if (run.batch_end > run.batch_begin) items.push_back(run);
    run = {next, next, 0, problem.num_kv_heads};
  };
  AttentionProblem entry = EntryOf(problem);
  EntryCost cost;
  int64_t bytes = 0;
  for (int64_t b = 0; b < problem.batch; ++b) {
    if (b == 0 || problem.sequences.size() > 1) {
      cost = CostOf(problem.sequence(b), &entry);
      bytes = Bytes(problem, cost);
    }
    const bool too_large = bytes > max_bytes || cost.flops > max_flops;
    if (too_large && by_rows) {
      end_run(b);
      if (CutRows(problem, b, cost, max_bytes, max_flops, &items)) {
        end_run(b + 1);
        continue;
      }
    }
    if (too_large || run.bytes + bytes > max_bytes ||
        run.flops + cost.flops > max_flops) {
      end_run(b);
    }
    if (too_large && problem.num_kv_heads > 1) {
      CutHeads(problem, b, cost, max_bytes, max_flops, &items);
      end_run(b + 1);
      continue;
    }
    run.batch_end = b + 1;
    run.bytes += bytes;
    run.flops += cost.flops;
    run.tokens += cost.rows_q;
  }
  end_run(problem.batch);
  if (items.empty())
    items.push_back({0, problem.batch, 0, problem.num_kv_heads});
  return items;
}

}  // namespace

std::vector<ItemRange> CutIntoItems(const AttentionProblem& problem,
                                    int64_t max_bytes, double max_flops) {
  // A single KV head is no border: there its query rows are cut.
  const bool by_rows = problem.num_kv_heads == 1 && !problem.HasPackedRows();
  return Cut(problem, max_bytes, max_flops, by_rows);
}

std::vector<ItemRange> CutIntoParts(const AttentionProblem& problem,
                                    int64_t max_bytes, double max_flops) {
  // Small enough that little is left to do when the last byte arrives, large
  // enough for the copies and launches of each.
  constexpr int64_t kPartBytes = int64_t{8} << 20;
  return Cut(problem, std::min(max_bytes, kPartBytes), max_flops,
             RowsAreOuter(problem));
}

}  // namespace attendant::server
