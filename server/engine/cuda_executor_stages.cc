// CudaExecutor, second half: a batch on its way through the stages, and ends.
#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/engine/cuda_executor.h"
#include "server/engine/item_copies.h"

namespace attendant::server {
namespace {

using Queue = DevicePort::Queue;

// Launches given to the device and not ended may take so long in all (as far
// as is known) when another is added: short ones follow each other without a
// gap, and nobody waits behind long ones who might expire meanwhile.
constexpr double kLaunchAheadSeconds = 300e-6;

}  // namespace

// --- Stages ---

bool CudaExecutor::AdvanceAll() {
  bool advanced = false;
  const std::vector<Slot*> slots(under_way_.begin(), under_way_.end());
  for (Slot* slot : slots) {
    const absl::StatusOr<bool> moved = Advance(slot);
    if (moved.ok()) {
      advanced |= *moved;
      continue;
    }
    Fail(slot, moved.status());
    if (broken_) return true;
    advanced = true;
  }
  return advanced;
}

absl::StatusOr<bool> CudaExecutor::Advance(Slot* slot) {
  switch (slot->state) {
    case State::kUploading: {
      ASSIGN_OR_RETURN(const bool reached,
                       port_->IsReached(Queue::kUpload, slot->index));
      if (!reached) return false;
      EndStage(slot, Stage::kUpload);
      slot->state = slot->at_once ? State::kComputing : State::kUploaded;
      if (slot->at_once) return true;
      [[fallthrough]];
    }
    case State::kUploaded:
      if (!MayLaunch(*slot)) return false;
      RETURN_IF_ERROR(Launch(slot));
      return true;
    case State::kComputing: {
      ASSIGN_OR_RETURN(const bool reached,
                       port_->IsReached(Queue::kKernel, slot->index));
      if (!reached) return false;
      return EndCompute(slot);
    }
    case State::kDownloading: {
      ASSIGN_OR_RETURN(const bool reached,
                       port_->IsReached(Queue::kDownload, slot->index));
      if (!reached) return false;
      EndStage(slot, Stage::kDownload);
      Finish(slot, absl::OkStatus());
      return true;
    }
  }
  return false;
}

void CudaExecutor::EndStage(Slot* slot, Stage stage) {
  const Clock::time_point now = options_.now();
  slot->planned.batch.intervals.push_back({stage, slot->stage_begin, now});
  slot->stage_begin = now;
}

bool CudaExecutor::MayLaunch(const Slot& slot) const {
  double ahead = 0;
  for (const Slot* other : under_way_) {
    if (other == &slot) break;
    if (other->state == State::kUploading || other->state == State::kUploaded) {
      return false;  // launches keep the order of pulls
    }
    if (other->state == State::kComputing) ahead += SecondsLeft(*other);
  }
  return ahead < kLaunchAheadSeconds;
}

double CudaExecutor::SecondsLeft(const Slot& computing) const {
  const auto begin = std::max(computing.stage_begin, last_compute_end_);
  const std::chrono::duration<double> since = options_.now() - begin;
  return std::max(0.0, computing.estimate_seconds - since.count());
}

absl::Status CudaExecutor::Launch(Slot* slot) {
  PlannedBatch& planned = slot->planned;
  const size_t items = planned.batch.items.size();
  DropEnded(source_, Stage::kKernel, &planned.batch);
  if (planned.batch.items.size() < items) {
    PlanItems(options_.device, source_, &planned);
    if (!scratch_.Take(planned.plan, slot->index, &slot->scratch)) {
      return absl::InternalError("a part of a batch needs more than the whole");
    }
  }
  if (planned.batch.items.empty()) {
    Remove(slot);
    return absl::OkStatus();
  }
  slot->stage_begin = options_.now();
  if (planned.problems.empty()) return Download(slot);
  slot->state = State::kComputing;
  return EnqueueKernels(slot);
}

absl::Status CudaExecutor::EnqueueKernels(Slot* slot) {
  PlannedBatch& planned = slot->planned;
  slot->estimate_seconds = source_->EstimateSeconds(planned.batch);
  if (slot->scratch.extra_control.bytes() > 0) {
    RETURN_IF_ERROR(port_->FillZero(Queue::kKernel,
                                    slot->scratch.context.control,
                                    planned.plan.control_bytes()));
  }
  RETURN_IF_ERROR(port_->Launch(planned.plan, slot->scratch.context));
  planned.batch.launches = 1;
  planned.batch.workspace_bytes = planned.plan.workspace_bytes();
  for (const WorkItem& item : planned.batch.items) {
    planned.batch.launched_flops += item.range.flops;
  }
  RETURN_IF_ERROR(ReadFlags(slot));
  return port_->Mark(Queue::kKernel, Queue::kKernel, slot->index);
}

absl::Status CudaExecutor::ReadFlags(Slot* slot) {
  int32_t* host = slot->scratch.host_flags;
  const auto* control =
      static_cast<const std::byte*>(slot->scratch.context.control);
  for (const int64_t offset : slot->planned.plan.repair_flag_offsets()) {
    RETURN_IF_ERROR(port_->ReadFlag(host++, control + offset));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> CudaExecutor::EndCompute(Slot* slot) {
  const int32_t* flags = slot->scratch.host_flags;
  const size_t count = slot->planned.plan.repair_flag_offsets().size();
  if (!slot->repaired &&
      std::any_of(flags, flags + count, [](int32_t flag) { return flag; })) {
    slot->repaired = true;
    slot->planned.batch.repairs = 1;
    RETURN_IF_ERROR(port_->Repair(slot->planned.plan, slot->scratch.context));
    RETURN_IF_ERROR(port_->Mark(Queue::kKernel, Queue::kKernel, slot->index));
    if (slot->at_once) RETURN_IF_ERROR(EnqueueDownload(slot));
    return true;
  }
  // The device was with an earlier launch until then.
  slot->stage_begin = std::max(slot->stage_begin, last_compute_end_);
  EndStage(slot, Stage::kKernel);
  last_compute_end_ = slot->stage_begin;
  if (slot->at_once) {
    // The copies into the answers are under way: nobody's memory may go.
    for (const WorkItem& item : slot->planned.batch.items) {
      (void)source_->Reached(item, Stage::kDownload);
    }
    slot->state = State::kDownloading;
    return true;
  }
  DropEnded(source_, Stage::kDownload, &slot->planned.batch);
  if (slot->planned.batch.items.empty()) {
    Finish(slot, absl::OkStatus());
    return true;
  }
  RETURN_IF_ERROR(Download(slot));
  return true;
}

absl::Status CudaExecutor::Download(Slot* slot) {
  slot->state = State::kDownloading;
  return EnqueueDownload(slot);
}

absl::Status CudaExecutor::EnqueueDownload(Slot* slot) {
  const Queue queue = slot->at_once ? Queue::kKernel : Queue::kDownload;
  Batch& batch = slot->planned.batch;
  for (const WorkItem& item : batch.items) {
    const ScheduledJob& job = *item.job;
    std::byte* device = options_.device_memory + job.device_output_offset;
    for (const CopyRect& rect : OutputCopies(*job.request, item.range)) {
      std::byte* host =
          rect.host != nullptr ? rect.host : job.output_memory + rect.offset;
      RETURN_IF_ERROR(port_->Download(queue, host, device + rect.offset,
                                      rect.pitch, rect.width, rect.height));
      batch.downloaded_bytes += rect.width * rect.height;
    }
  }
  return port_->Mark(queue, Queue::kDownload, slot->index);
}

// --- Ends ---

void CudaExecutor::Remove(Slot* slot) {
  slot->scratch = LaunchScratch::Hold();
  slot->planned = PlannedBatch();
  under_way_.erase(std::find(under_way_.begin(), under_way_.end(), slot));
  free_.push_back(slot);
}

void CudaExecutor::Finish(Slot* slot, const absl::Status& status) {
  Batch batch = std::move(slot->planned.batch);
  for (WorkItem& item : batch.items) item.status = status;
  Remove(slot);
  source_->Finish(std::move(batch));
}

void CudaExecutor::Fail(Slot* slot, const absl::Status& status) {
  if (port_->IsSticky(status)) return BreakDown(status);
  // Nothing may touch the batch's memory any more when it goes back.
  if (const absl::Status cleared = ClearControl(*slot); !cleared.ok()) {
    return BreakDown(cleared);
  }
  Finish(slot, absl::InternalError(
                   absl::StrCat("the device refused: ", status.message())));
}

absl::Status CudaExecutor::ClearControl(const Slot& slot) {
  RETURN_IF_ERROR(port_->Synchronize());
  RETURN_IF_ERROR(port_->FillZero(Queue::kKernel,
                                  scratch_.control_of(slot.index),
                                  LaunchScratch::kControlBytes));
  return port_->Synchronize();
}

bool CudaExecutor::IsStuck() const {
  if (options_.stuck_after <= Clock::duration::zero() || under_way_.empty()) {
    return false;
  }
  constexpr double kPatience = 4;
  const Slot& oldest = *under_way_.front();
  const auto begin = std::max(oldest.stage_begin, last_compute_end_);
  const std::chrono::duration<double> since =
      options_.now() - begin - options_.stuck_after;
  return since.count() > kPatience * oldest.estimate_seconds;
}

void CudaExecutor::BreakDown(const absl::Status& status) {
  broken_ = true;
  source_->ReportUnhealthy(status);
  while (!under_way_.empty()) Finish(under_way_.front(), status);
  if (pending_.has_value()) backlog_.push_front(*std::move(pending_));
  pending_.reset();
  for (Batch& batch : backlog_) source_->Finish(std::move(batch));
  backlog_.clear();
}

}  // namespace attendant::server
