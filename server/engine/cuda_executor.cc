#include "server/engine/cuda_executor.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/engine/item_copies.h"
#include "server/request/errors.h"

namespace attendant::server {
namespace {

using Queue = DevicePort::Queue;

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
    lock.unlock();
    if (!SeesWorkSoon()) {
      lock.lock();
      woken_.wait(lock, [this] { return work_ || stopped_; });
    }
    work_ = false;
    last_progress = Clock::now();
  }
}

// Callers in a loop come again sooner than a thread wakes up.
bool CudaExecutor::SeesWorkSoon() {
  const auto until = Clock::now() + options_.watchful;
  while (!work_) {
    if (Clock::now() >= until) return false;
    std::this_thread::yield();
  }
  return true;
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
  slot->at_once = MayGoAtOnce(planned);
  slot->estimate_seconds = 0;
  slot->stage_begin = options_.now();
  absl::Status status = Upload(slot);
  if (slot->at_once) {
    if (status.ok()) status = EnqueueKernels(slot);
    if (status.ok()) status = EnqueueDownload(slot);
  }
  if (!status.ok()) Fail(slot, status);
}

// With others under way the queues side by side are worth more.
bool CudaExecutor::MayGoAtOnce(const PlannedBatch& planned) const {
  return under_way_.size() == 1 && backlog_.empty() &&
         !planned.problems.empty() &&
         planned.batch.bytes <= options_.at_once_bytes;
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
  const Queue queue = slot->at_once ? Queue::kKernel : Queue::kUpload;
  Batch& batch = slot->planned.batch;
  for (const WorkItem& item : batch.items) {
    RETURN_IF_ERROR(UploadItem(queue, item, &batch));
  }
  return port_->Mark(queue, Queue::kUpload, slot->index);
}

absl::Status CudaExecutor::UploadItem(Queue queue, const WorkItem& item,
                                      Batch* batch) {
  const ScheduledJob& job = *item.job;
  const ValidatedRequest& request = *job.request;
  std::byte* input = options_.device_memory + job.device_range.offset();
  for (const CopyRect& rect :
       InputCopies(request, item.range, item.first, item.brings_kv)) {
    const std::byte* host =
        rect.host != nullptr ? rect.host : job.input_memory + rect.offset;
    RETURN_IF_ERROR(port_->Upload(queue, input + rect.offset, host, rect.pitch,
                                  rect.width, rect.height));
    batch->uploaded_bytes += rect.width * rect.height;
  }
  if (!item.first || !job.has_uncovered_rows) return absl::OkStatus();
  std::byte* output = options_.device_memory + job.device_output_offset;
  if (request.output_bytes > 0) {
    RETURN_IF_ERROR(
        port_->FillZero(queue, request.OutputIn(output), request.output_bytes));
  }
  if (request.lse_bytes == 0) return absl::OkStatus();
  return port_->FillFloat(
      queue, request.LseIn(output),
      request.lse_bytes / static_cast<int64_t>(sizeof(float)),
      -std::numeric_limits<float>::infinity());
}

}  // namespace attendant::server
