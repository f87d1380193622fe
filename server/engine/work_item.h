// The unit that is scheduled: a part of one request, cut at batch and KV-head
// borders.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/problem.h"

namespace attendant::server {

struct ScheduledJob;

// Stored query rows of an item that is not cut by rows.
inline constexpr int64_t kAllRows = -1;

// Batch entries [batch_begin, batch_end) x KV heads [kv_head_begin,
// kv_head_end) of a request: the arguments of kernels::CutProblem.
struct ItemRange {
  int64_t batch_begin = 0, batch_end = 0;
  int64_t kv_head_begin = 0, kv_head_end = 0;
  int64_t bytes = 0;  // of q, k, v and O in the range
  double flops = 0;
  int64_t tokens = 0;  // query rows
  // Rows [row_begin, row_end) of q, O and LSE alone; then it is one batch
  // entry's, and all its KV heads'.
  int64_t row_begin = 0, row_end = kAllRows;

  bool cut_by_rows() const { return row_end != kAllRows; }
};

// Cuts a problem into ranges of at most max_bytes and max_flops where batch and
// KV-head borders allow it; batch entries first, and heads only of an entry
// that is too large alone; query rows of one that has a single KV head. Ranges
// are disjoint and cover the problem; a problem without batch entries or heads
// gives one (empty) range.
std::vector<ItemRange> CutIntoItems(const kernels::AttentionProblem& problem,
                                    int64_t max_bytes, double max_flops);

// The same for a request that arrives in parts: items become complete as early
// as its layout allows. Batch entries whose rows lie outside their heads (BSHD)
// are cut by query rows, which need all of K and V but few rows of Q each.
std::vector<ItemRange> CutIntoParts(const kernels::AttentionProblem& problem,
                                    int64_t max_bytes, double max_flops);

// One range on its way through an executor, which fills the second half.
struct WorkItem {
  std::shared_ptr<ScheduledJob> job;
  ItemRange range;
  bool first = false;  // of its job's items, in the order of pulls
  // False: the K and V that it reads came with an earlier item (by rows).
  bool brings_kv = true;

  absl::Status status;
  std::string kernel;
  int64_t workspace_bytes = 0;
};

}  // namespace attendant::server
