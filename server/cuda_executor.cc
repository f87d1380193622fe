#include "server/cuda_executor.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/errors.h"
#include "server/item_copies.h"
#include "server/regions/region_memory.h"

namespace attendant::server {
namespace {

using Queue = DevicePort::Queue;

// Launches given to the device and not ended may take so long in all (as far
// as is known) when another is added: short ones follow each other without a
// gap, and nobody waits behind long ones who might expire meanwhile.
constexpr double kLaunchAheadSeconds = 300e-6;
// The thread looks at the device all the time for so long after the last
// progress, then with pauses.
constexpr std::chrono::microseconds kEagerTime{200};
constexpr std::chrono::microseconds kPause{20};

}  // namespace

CudaExecutor::CudaExecutor(Options options, WorkSource* source,
                           DevicePort* port)
    : options_(std::move(options)),
      source_(source),
      port_(port),
      scratch_(DevicePort::kNumSlots, options_.device_scratch,
               options_.device_scratch_bytes, options_.host_scratch,
               options_.host_scratch_bytes) {
  for (int i = DevicePort::kNumSlots - 1; i >= 0; --i) {
    slots_[i].index = i;
    free_.push_back(&slots_[i]);
  }
}

CudaExecutor::~CudaExecutor() { Stop(); }

absl::Status CudaExecutor::Prepare() {
  for (const Slot& slot : slots_) RETURN_IF_ERROR(ClearControl(slot));
  return absl::OkStatus();
}

void CudaExecutor::Start(std::function<void()> on_thread) {
  thread_ = std::thread([this, on_thread = std::move(on_thread)] {
    if (on_thread) on_thread();
    Run();
  });
}

void CudaExecutor::Wake() {
  std::lock_guard lock(mu_);
  work_ = true;
  woken_.notify_one();
}

void CudaExecutor::Stop() {
  {
    std::lock_guard lock(mu_);
    stopped_ = true;
    woken_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void CudaExecutor::Run() {
  auto last_progress = Clock::now();
  while (true) {
    if (Step()) {
      last_progress = Clock::now();
      continue;
    }
    std::unique_lock lock(mu_);
    if (busy()) {
      lock.unlock();
      if (Clock::now() - last_progress < kEagerTime) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(kPause);
      }
      continue;
    }
    if (stopped_) return;
    woken_.wait(lock, [this] { return work_ || stopped_; });
    work_ = false;
    last_progress = Clock::now();
  }
}

bool CudaExecutor::Step() {
  if (broken_) return false;
  const bool advanced = AdvanceAll();
  if (broken_) return true;
  if (!advanced && IsStuck()) {
    BreakDown(absl::UnavailableError(absl::StrCat(
        "the device did not end a batch within ",
        std::chrono::duration<double>(options_.stuck_after).count(),
        " s of when it should have (--stuck_seconds)")));
    return true;
  }
  return PullOne() || advanced;
}

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
      slot->state = State::kUploaded;
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
  slot->state = State::kComputing;
  return port_->Mark(Queue::kKernel, slot->index);
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
    RETURN_IF_ERROR(port_->Mark(Queue::kKernel, slot->index));
    return true;
  }
  // The device was with an earlier launch until then.
  slot->stage_begin = std::max(slot->stage_begin, last_compute_end_);
  EndStage(slot, Stage::kKernel);
  last_compute_end_ = slot->stage_begin;
  DropEnded(source_, Stage::kDownload, &slot->planned.batch);
  if (slot->planned.batch.items.empty()) {
    Finish(slot, absl::OkStatus());
    return true;
  }
  RETURN_IF_ERROR(Download(slot));
  return true;
}

absl::Status CudaExecutor::Download(Slot* slot) {
  Batch& batch = slot->planned.batch;
  for (const WorkItem& item : batch.items) {
    const ScheduledJob& job = *item.job;
    std::byte* device = options_.device_memory + job.device_output_offset;
    for (const CopyRect& rect : OutputCopies(*job.request, item.range)) {
      std::byte* host =
          rect.host != nullptr ? rect.host : job.output_memory + rect.offset;
      RETURN_IF_ERROR(port_->Download(host, device + rect.offset, rect.pitch,
                                      rect.width, rect.height));
      batch.downloaded_bytes += rect.width * rect.height;
    }
  }
  slot->state = State::kDownloading;
  return port_->Mark(Queue::kDownload, slot->index);
}

// --- From the queue to the upload ---

bool CudaExecutor::PullOne() {
  if (free_.empty()) return false;
  Batch batch;
  if (pending_.has_value()) {
    if (under_way_.size() == pending_behind_) return false;
    batch = *std::move(pending_);
    pending_.reset();
  } else if (!backlog_.empty()) {
    batch = std::move(backlog_.front());
    backlog_.pop_front();
  } else {
    batch = source_->Pull();
  }
  if (batch.items.empty()) return false;
  PlanAndUpload(std::move(batch));
  return true;
}

void CudaExecutor::PlanAndUpload(Batch batch) {
  Slot* slot = free_.back();
  PlannedBatch& planned = slot->planned;
  planned.batch = std::move(batch);
  DropEnded(source_, Stage::kUpload, &planned.batch);
  PlanItems(options_.device, source_, &planned);
  if (planned.batch.items.empty()) return;
  if (!scratch_.Take(planned.plan, slot->index, &slot->scratch)) {
    return HandleNoScratch(std::move(planned));
  }
  free_.pop_back();
  under_way_.push_back(slot);
  slot->state = State::kUploading;
  slot->repaired = false;
  slot->estimate_seconds = 0;
  slot->stage_begin = options_.now();
  if (const absl::Status status = Upload(slot); !status.ok()) {
    Fail(slot, status);
  }
}

// With others under way it waits for their memory; else it is cut in two, and
// an item that is too large alone fails.
void CudaExecutor::HandleNoScratch(PlannedBatch planned) {
  Batch& batch = planned.batch;
  if (!under_way_.empty()) {
    pending_ = std::move(batch);
    pending_behind_ = under_way_.size();
    return;
  }
  if (batch.items.size() == 1) {
    batch.items[0].status = InvalidField(
        "scratch memory",
        absl::StrCat(planned.plan.workspace_bytes() +
                         planned.plan.control_bytes() +
                         planned.plan.descriptor_bytes(),
                     " bytes"),
        absl::StrCat("at most ", scratch_.device_capacity(), " on the ",
                     "device and ", scratch_.host_capacity(), " on the host"));
    source_->Finish(std::move(batch));
    return;
  }
  Batch rest = batch;
  const auto middle = static_cast<int64_t>(batch.items.size() / 2);
  batch.items.erase(batch.items.begin() + middle, batch.items.end());
  rest.items.erase(rest.items.begin(), rest.items.begin() + middle);
  backlog_.push_front(std::move(rest));
  backlog_.push_front(std::move(batch));
}

absl::Status CudaExecutor::Upload(Slot* slot) {
  Batch& batch = slot->planned.batch;
  for (const WorkItem& item : batch.items) {
    RETURN_IF_ERROR(UploadItem(item, &batch));
  }
  return port_->Mark(Queue::kUpload, slot->index);
}

absl::Status CudaExecutor::UploadItem(const WorkItem& item, Batch* batch) {
  const ScheduledJob& job = *item.job;
  const ValidatedRequest& request = *job.request;
  std::byte* input = options_.device_memory + job.device_range.offset();
  RETURN_IF_ERROR(WaitForRegions(request));
  for (const CopyRect& rect :
       InputCopies(request, item.range, item.first, item.brings_kv)) {
    const std::byte* host =
        rect.host != nullptr ? rect.host : job.input_memory + rect.offset;
    RETURN_IF_ERROR(port_->Upload(input + rect.offset, host, rect.pitch,
                                  rect.width, rect.height));
    batch->uploaded_bytes += rect.width * rect.height;
  }
  if (!item.first || !job.has_uncovered_rows) return absl::OkStatus();
  std::byte* output = options_.device_memory + job.device_output_offset;
  if (request.output_bytes > 0) {
    RETURN_IF_ERROR(port_->FillZero(Queue::kUpload, request.OutputIn(output),
                                    request.output_bytes));
  }
  if (request.lse_bytes == 0) return absl::OkStatus();
  return port_->FillFloat(
      request.LseIn(output),
      request.lse_bytes / static_cast<int64_t>(sizeof(float)),
      -std::numeric_limits<float>::infinity());
}

// The launch follows the upload's mark, and so waits too.
absl::Status CudaExecutor::WaitForRegions(const ValidatedRequest& request) {
  const auto wait = [this](const TensorPlace& place) {
    void* event = place.in_region() ? place.region->ready_event() : nullptr;
    return event == nullptr ? absl::OkStatus()
                            : port_->WaitFor(Queue::kUpload, event);
  };
  for (const ValidatedRequest::Image& image : request.images) {
    RETURN_IF_ERROR(wait(image.place));
  }
  RETURN_IF_ERROR(wait(request.output_place));
  return wait(request.lse_place);
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
