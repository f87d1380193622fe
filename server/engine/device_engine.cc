#include "server/engine/device_engine.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "kernels/base/status_macros.h"
#include "server/engine/batch_scheduler.h"
#include "server/engine/copy_threads.h"
#include "server/engine/self_check.h"
#include "server/request/element_conversion.h"

namespace attendant::server {
namespace {

// Sending so much takes the executor's thread about 0.1 ms.
constexpr int64_t kToldAtOnceBytes = int64_t{1} << 20;

int CopyThreadCount(int asked) {
  if (asked > 0) return asked;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency() / 4));
}

BatchScheduler::Options SchedulerOptions(const EngineOptions& options,
                                         const EngineParts& parts) {
  BatchScheduler::Options scheduler;
  QueueLimits& limits = scheduler.limits;
  limits.max_queued_requests = options.max_queued_requests;
  limits.max_queued_bytes = options.max_queued_bytes;
  limits.max_queued_flops = options.max_queued_flops;
  limits.host_pool_bytes = parts.host_pool->capacity_bytes();
  if (parts.device_pool != nullptr) {
    limits.device_pool_bytes = parts.device_pool->capacity_bytes();
  }
  limits.cost_per_byte = parts.cost_per_byte;
  scheduler.max_age = options.max_age;
  scheduler.work_item_bytes = options.work_item_bytes;
  scheduler.work_item_flops = options.work_item_flops > 0
                                  ? options.work_item_flops
                                  : parts.default_item_flops;
  scheduler.max_batch_bytes = options.max_batch_bytes;
  scheduler.max_batch_flops =
      options.max_batch_flops > 0
          ? options.max_batch_flops
          : parts.items_in_batch * scheduler.work_item_flops;
  scheduler.told_at_once_bytes = kToldAtOnceBytes;
  scheduler.assumed_flops_per_second = parts.assumed_flops_per_second;
  scheduler.pools.host = parts.host_pool.get();
  scheduler.pools.device = parts.device_pool.get();
  scheduler.pools.device_memory = parts.device_memory;
  return scheduler;
}

// Has O rounded to the caller's type before `done` is told. On the executor's
// thread, as few callers mix types so.
void NarrowWhenDone(AttentionJob* job) {
  job->done = [job, done = std::move(job->done)](JobResult result) {
    const ValidatedRequest& request = *job->request;
    if (result.status.ok() && request.output_bytes > 0) {
      NarrowInPlace(job->output->data(), *request.narrow_output_to,
                    request.output_bytes / static_cast<int64_t>(sizeof(float)));
    }
    done(std::move(result));
  };
}

class DeviceEngine final : public AttentionEngine {
 public:
  DeviceEngine(const EngineOptions& options, EngineParts parts)
      : parts_(std::move(parts)),
        scheduler_(SchedulerOptions(options, parts_)) {}

  // Once, before anything else.
  absl::Status Start(const EngineOptions& options) {
    ASSIGN_OR_RETURN(executor_, parts_.start_executor(&scheduler_));
    scheduler_.SetExecutor(executor_.get());
    copy_threads_ =
        std::make_unique<CopyThreads>(CopyThreadCount(options.copy_threads));
    timer_ = std::thread([this] { scheduler_.RunTimer(); });
    if (options.self_check_share > 0) {
      self_check_ = std::make_unique<SelfCheck>(SelfCheck::Options{
          .share = options.self_check_share,
          .max_bytes = options.self_check_bytes,
          .idle =
              [this] {
                const EngineSnapshot now = scheduler_.Snapshot();
                return now.queued_requests + now.running_requests == 0;
              },
          .run =
              [this](std::function<void()> copy) {
                copy_threads_->Run(
                    1, [copy = std::move(copy)](int) { copy(); }, [] {});
              }});
    }
    return absl::OkStatus();
  }

  ~DeviceEngine() override {
    if (executor_ == nullptr) return;
    scheduler_.CloseAdmission();
    if (self_check_ != nullptr) self_check_->Stop();
    copy_threads_.reset();  // their last act may be a Submit
    scheduler_.EndAll(absl::UnavailableError("the server is shutting down"));
    executor_->Stop();
    scheduler_.StopTimer();
    timer_.join();
  }

  const DeviceDescription& device() const override { return parts_.device; }
  RegionDevice* region_device() override { return parts_.region_device.get(); }

  absl::StatusOr<std::shared_ptr<AttentionJob>> Admit(
      std::unique_ptr<ValidatedRequest> request,
      Clock::time_point deadline) override {
    return scheduler_.Admit(std::move(request), deadline);
  }
  void CopyAsync(int num_parts, std::function<void(int)> copy,
                 std::function<void()> then) override {
    copy_threads_->Run(num_parts, std::move(copy), std::move(then));
  }
  void Submit(std::shared_ptr<AttentionJob> job) override {
    // Innermost: it sees what the caller sees.
    if (self_check_ != nullptr) self_check_->Watch(job);
    if (job->request->narrow_output_to.has_value()) NarrowWhenDone(job.get());
    scheduler_.Submit(std::move(job));
  }
  void InputArrived(const std::shared_ptr<AttentionJob>& job,
                    size_t index) override {
    scheduler_.InputArrived(job, index);
  }
  void Cancel(const std::shared_ptr<AttentionJob>& job) override {
    scheduler_.Cancel(job);
  }
  void Drain(Clock::time_point deadline) override {
    scheduler_.CloseAdmission();
    scheduler_.WaitIdle(deadline);
    if (self_check_ != nullptr) self_check_->Stop();
  }

  EngineSnapshot Snapshot() const override {
    EngineSnapshot snapshot = scheduler_.Snapshot();
    if (parts_.device_pool != nullptr) {
      snapshot.device_reserved_bytes += parts_.executor_bytes;
      snapshot.device_used_bytes += parts_.executor_bytes;
      snapshot.device_peak_bytes += parts_.executor_bytes;
    }
    if (self_check_ != nullptr) {
      const SelfCheck::Counts counts = self_check_->counts();
      snapshot.self_checks_right = counts.right;
      snapshot.self_checks_wrong = counts.wrong;
      snapshot.self_checks_dropped = counts.dropped;
    }
    return snapshot;
  }

 private:
  EngineParts parts_;
  BatchScheduler scheduler_;
  std::unique_ptr<AttentionExecutor> executor_;
  std::unique_ptr<CopyThreads> copy_threads_;
  std::unique_ptr<SelfCheck> self_check_;  // null = off; keeps jobs
  std::thread timer_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AttentionEngine>> MakeDeviceEngine(
    const EngineOptions& options, EngineParts parts) {
  auto engine = std::make_unique<DeviceEngine>(options, std::move(parts));
  RETURN_IF_ERROR(engine->Start(options));
  return engine;
}

}  // namespace attendant::server
