// Executes work items with the CPU kernel, on the requests' own host blocks.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "kernels/attention.h"
#include "server/engine/attention_executor.h"
#include "server/engine/planned_batch.h"

namespace attendant::server {

class CpuExecutor final : public AttentionExecutor {
 public:
  // `source` and `pool` outlive the executor. Without Start nothing runs but
  // by Step (for tests).
  CpuExecutor(const kernels::DeviceProperties& device, WorkSource* source,
              kernels::cpu::ThreadPool* pool,
              std::function<Clock::time_point()> now);
  ~CpuExecutor() override;

  // Starts the thread that pulls.
  void Start();
  void Wake() override;
  void Stop() override;

  // Pulls one batch and computes it; false if there was nothing to pull.
  bool Step();

 private:
  void Run();
  // Computes planned_'s items.
  absl::Status Launch();
  // At least `bytes`, aligned to 256.
  std::byte* Workspace(int64_t bytes);

  const kernels::DeviceProperties device_;
  WorkSource* const source_;
  kernels::cpu::ThreadPool* const pool_;
  const std::function<Clock::time_point()> now_;

  PlannedBatch planned_;  // of Step
  std::unique_ptr<std::byte[]> workspace_;
  int64_t workspace_bytes_ = 0;

  std::mutex mu_;
  std::condition_variable woken_;
  bool work_ = false;     // guarded by mu_
  bool stopped_ = false;  // guarded by mu_
  std::thread thread_;
};

}  // namespace attendant::server
