#include "server/engine/planned_batch.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "kernels/row_cut.h"

namespace attendant::server {
namespace {

using kernels::AttentionProblem;

bool IsEmpty(const AttentionProblem& problem) {
  return problem.batch == 0 || problem.num_q_heads == 0 || problem.rows_q == 0;
}

AttentionProblem Cut(const WorkItem& item) {
  const ItemRange& range = item.range;
  AttentionProblem part =
      kernels::CutProblem(item.job->problem, range.batch_begin, range.batch_end,
                          range.kv_head_begin, range.kv_head_end);
  return range.cut_by_rows()
             ? kernels::CutRows(part, range.row_begin, range.row_end)
             : part;
}

// Moves the items with a bad status out of the batch and back to `source`.
void GiveBackFailed(WorkSource* source, Batch* batch) {
  Batch failed;
  const auto bad = std::stable_partition(
      batch->items.begin(), batch->items.end(),
      [](const WorkItem& item) { return item.status.ok(); });
  std::move(bad, batch->items.end(), std::back_inserter(failed.items));
  batch->items.erase(bad, batch->items.end());
  if (!failed.items.empty()) source->Finish(std::move(failed));
}

void CutItems(PlannedBatch* planned) {
  planned->plan = kernels::AttentionPlan();
  planned->problems.clear();
  planned->item_of_problem.clear();
  for (size_t i = 0; i < planned->batch.items.size(); ++i) {
    AttentionProblem problem = Cut(planned->batch.items[i]);
    if (IsEmpty(problem)) continue;
    planned->problems.push_back(std::move(problem));
    planned->item_of_problem.push_back(i);
  }
}

// The error, if any, of each item planned alone.
void FindFailed(const kernels::DeviceProperties& device,
                PlannedBatch* planned) {
  for (size_t i = 0; i < planned->problems.size(); ++i) {
    planned->batch.items[planned->item_of_problem[i]].status =
        kernels::PlanAttention(device, {&planned->problems[i], 1}).status();
  }
}

void NoteItems(const kernels::DeviceProperties& device, PlannedBatch* planned) {
  std::vector<WorkItem>& items = planned->batch.items;
  for (size_t i = 0; i < planned->problems.size(); ++i) {
    WorkItem& item = items[planned->item_of_problem[i]];
    item.kernel = std::string(planned->plan.kernel_name(i));
    item.workspace_bytes = planned->plan.workspace_bytes_of(i);
  }
  for (WorkItem& item : items) {
    if (!item.kernel.empty()) continue;
    // Nothing to compute: named for the reply all the same.
    const auto kernel = kernels::FindKernel(device, item.job->problem);
    if (kernel.ok()) item.kernel = std::string((*kernel)->capability.kernel);
  }
}

}  // namespace

void DropEnded(WorkSource* source, Stage stage, Batch* batch) {
  Batch ended;
  const auto first = std::stable_partition(
      batch->items.begin(), batch->items.end(),
      [&](const WorkItem& item) { return source->Reached(item, stage); });
  std::move(first, batch->items.end(), std::back_inserter(ended.items));
  batch->items.erase(first, batch->items.end());
  if (!ended.items.empty()) source->Finish(std::move(ended));
}

void PlanItems(const kernels::DeviceProperties& device, WorkSource* source,
               PlannedBatch* planned) {
  // The second round has the good items only; the third guards against a
  // planner that refuses what it accepted alone.
  for (int round = 0; round < 3; ++round) {
    CutItems(planned);
    if (planned->problems.empty()) break;
    auto plan = kernels::PlanAttention(device, planned->problems);
    if (plan.ok()) {
      planned->plan = *std::move(plan);
      break;
    }
    if (round == 0) {
      FindFailed(device, planned);
    } else {
      for (WorkItem& item : planned->batch.items) item.status = plan.status();
    }
    GiveBackFailed(source, &planned->batch);
  }
  NoteItems(device, planned);
}

void FillWithEmptyRows(const ValidatedRequest& request, std::byte* output) {
  std::fill_n(request.OutputIn(output), request.output_bytes, std::byte{0});
  std::fill_n(request.LseIn(output),
              request.lse_bytes / static_cast<int64_t>(sizeof(float)),
              -std::numeric_limits<float>::infinity());
}

}  // namespace attendant::server
