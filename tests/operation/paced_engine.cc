#include "tests/operation/paced_engine.h"

#include <thread>
#include <utility>

#include "kernels/base/status_macros.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/thread_pool.h"
#include "server/engine/cpu_executor.h"
#include "server/engine/device_engine.h"
#include "server/engine/host_memory_pool.h"

namespace attendant::testing {
namespace {

// Of a GPU: an item of 1e12 operations at 6e14 a second.
constexpr double kItemSeconds = 1.0 / 600;
constexpr double kItemsInBatch = 4;
constexpr double kUnpacedFlopsPerSecond = 4e10;

}  // namespace

void PacedSource::Close() {
  std::lock_guard lock(mu_);
  closed_ = true;
}

void PacedSource::Open() {
  std::lock_guard lock(mu_);
  closed_ = false;
  opened_.notify_all();
}

server::Batch PacedSource::Pull() {
  server::Batch batch = source_->Pull();
  pulled_ = server::Clock::now();
  return batch;
}

bool PacedSource::Reached(const server::WorkItem& item, server::Stage stage) {
  const bool needed = source_->Reached(item, stage);
  if (needed && stage == server::Stage::kKernel) ++launched_items_;
  return needed;
}

void PacedSource::Finish(server::Batch batch) {
  {
    std::unique_lock lock(mu_);
    opened_.wait(lock, [this] { return !closed_; });
  }
  if (flops_per_second_ > 0) {
    const std::chrono::duration<double> takes(batch.launched_flops /
                                              flops_per_second_);
    std::this_thread::sleep_until(
        pulled_ + std::chrono::duration_cast<server::Clock::duration>(takes));
  }
  source_->Finish(std::move(batch));
}

double PacedSource::EstimateSeconds(const server::Batch& batch) {
  return source_->EstimateSeconds(batch);
}

void PacedSource::ReportUnhealthy(const absl::Status& why) {
  source_->ReportUnhealthy(why);
}

absl::StatusOr<std::unique_ptr<server::AttentionEngine>> MakePacedEngine(
    const server::EngineOptions& options, double flops_per_second,
    const std::shared_ptr<PacedSource>& source) {
  constexpr int kThreads = 1;
  const double speed =
      flops_per_second > 0 ? flops_per_second : kUnpacedFlopsPerSecond;
  server::EngineParts parts;
  parts.device.uuid = "CPU";
  parts.device.name = "a device of a known speed";
  parts.device.instruction_set =
      std::string(kernels::cpu::ActiveSimdKernels().name);
  parts.device.properties.num_sms = kThreads;
  ASSIGN_OR_RETURN(parts.host_pool,
                   server::CreatePlainHostPool(options.host_pool_bytes));
  parts.assumed_flops_per_second = speed;
  parts.default_item_flops = speed * kItemSeconds;
  parts.items_in_batch = kItemsInBatch;
  const auto pool = std::make_shared<kernels::cpu::ThreadPool>(kThreads);
  parts.start_executor = [pool, source, properties = parts.device.properties](
                             server::WorkSource* scheduler)
      -> std::unique_ptr<server::AttentionExecutor> {
    source->SetSource(scheduler);
    auto executor = std::make_unique<server::CpuExecutor>(
        properties, source.get(), pool.get(),
        [] { return server::Clock::now(); });
    executor->Start();
    return executor;
  };
  return server::MakeDeviceEngine(options, std::move(parts));
}

}  // namespace attendant::testing
