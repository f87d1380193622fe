// A batch with its plan: what both executors do before a launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "server/engine/attention_executor.h"

namespace attendant::server {

struct PlannedBatch {
  Batch batch;
  // One per item that has anything to compute, in the items' order.
  std::vector<kernels::AttentionProblem> problems;
  std::vector<size_t> item_of_problem;  // index in batch.items
  kernels::AttentionPlan plan;          // of `problems`, if there are any
};

// Gives the items of ended jobs back to `source`; the others reach `stage`.
// Only while the executor has no work under way for the batch.
void DropEnded(WorkSource* source, Stage stage, Batch* batch);

// Plans the items as one grouped launch and notes each one's kernel and
// workspace. An item that can't be planned is given back to `source` with its
// error and does not harm the others. Replaces what *planned had.
void PlanItems(const kernels::DeviceProperties& device, WorkSource* source,
               PlannedBatch* planned);

// O = 0 and LSE = -inf in all of an output, whose block or regions are in host
// memory.
void FillWithEmptyRows(const ValidatedRequest& request, std::byte* output);

}  // namespace attendant::server
