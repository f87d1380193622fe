#include "server/engine/cpu_executor.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/base/status_macros.h"

namespace attendant::server {

CpuExecutor::CpuExecutor(const kernels::DeviceProperties& device,
                         WorkSource* source, kernels::cpu::ThreadPool* pool,
                         std::function<Clock::time_point()> now)
    : device_(device), source_(source), pool_(pool), now_(std::move(now)) {}

CpuExecutor::~CpuExecutor() { Stop(); }

void CpuExecutor::Start() {
  thread_ = std::thread([this] { Run(); });
}

void CpuExecutor::Wake() {
  std::lock_guard lock(mu_);
  work_ = true;
  woken_.notify_one();
}

void CpuExecutor::Stop() {
  {
    std::lock_guard lock(mu_);
    stopped_ = true;
    woken_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void CpuExecutor::Run() {
  while (true) {
    {
      std::unique_lock lock(mu_);
      woken_.wait(lock, [this] { return work_ || stopped_; });
      if (stopped_) return;
      work_ = false;
    }
    while (Step()) {
      std::lock_guard lock(mu_);
      if (stopped_) return;
    }
  }
}

bool CpuExecutor::Step() {
  planned_.batch = source_->Pull();
  if (planned_.batch.items.empty()) return false;
  DropEnded(source_, Stage::kKernel, &planned_.batch);
  PlanItems(device_, source_, &planned_);
  Batch& batch = planned_.batch;
  if (batch.items.empty()) return true;
  const Clock::time_point begin = now_();
  const absl::Status status = Launch();
  batch.intervals.push_back({Stage::kKernel, begin, now_()});
  for (WorkItem& item : batch.items) item.status = status;
  source_->Finish(std::move(batch));
  return true;
}

absl::Status CpuExecutor::Launch() {
  Batch& batch = planned_.batch;
  for (const WorkItem& item : batch.items) {
    const ScheduledJob& job = *item.job;
    if (item.first && job.has_uncovered_rows) {
      FillWithEmptyRows(*job.request, job.output_memory);
    }
  }
  if (planned_.problems.empty()) return absl::OkStatus();
  kernels::LaunchContext context;
  context.thread_pool = pool_;
  batch.workspace_bytes = planned_.plan.workspace_bytes();
  context.workspace = Workspace(batch.workspace_bytes);
  const std::function<bool()> unwanted = [&batch] {
    return std::all_of(batch.items.begin(), batch.items.end(),
                       [](const WorkItem& item) -> bool {
                         return item.job->ended.load(std::memory_order_relaxed);
                       });
  };
  context.unwanted = &unwanted;
  RETURN_IF_ERROR(planned_.plan.Launch(context));
  // Not of a launch that was given up: it tells nothing of the device's speed.
  batch.launches = 1;
  for (const WorkItem& item : batch.items) {
    batch.launched_flops += item.range.flops;
  }
  return absl::OkStatus();
}

std::byte* CpuExecutor::Workspace(int64_t bytes) {
  constexpr int64_t kAlignment = 256;
  if (bytes > workspace_bytes_) {
    workspace_.reset();  // not both at once
    workspace_.reset(new std::byte[bytes + kAlignment]);
    workspace_bytes_ = bytes;
  }
  const auto address = reinterpret_cast<uintptr_t>(workspace_.get());
  return workspace_.get() + (kAlignment - address % kAlignment) % kAlignment;
}

}  // namespace attendant::server
