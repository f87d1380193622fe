// The server's own engine over a device of a known speed: the CPU kernel
// computes the answers, and a batch is given back no earlier than a device of
// that speed would. So capacity is a number, and it is not the client's share
// of the machine that decides how a test goes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "absl/status/statusor.h"
#include "server/engine/attention_engine.h"
#include "server/engine/attention_executor.h"

namespace attendant::testing {

// Holds every batch at Finish until a device of the given speed were done, or
// until a gate is opened. Thread-safe.
class PacedSource final : public server::WorkSource {
 public:
  // 0 = as fast as it is.
  explicit PacedSource(double flops_per_second)
      : flops_per_second_(flops_per_second) {}

  // Before the first Pull.
  void SetSource(server::WorkSource* source) { source_ = source; }

  // From now on no batch ends, until Open.
  void Close();
  void Open();
  // Items pulled and not dropped before their kernel, since the start.
  int64_t launched_items() const { return launched_items_; }

  server::Batch Pull() override;
  bool Reached(const server::WorkItem& item, server::Stage stage) override;
  void Finish(server::Batch batch) override;
  double EstimateSeconds(const server::Batch& batch) override;
  void ReportUnhealthy(const absl::Status& why) override;

 private:
  const double flops_per_second_;
  server::WorkSource* source_ = nullptr;
  server::Clock::time_point pulled_;  // of the executor's thread
  std::atomic<int64_t> launched_items_{0};
  std::mutex mu_;
  std::condition_variable opened_;
  bool closed_ = false;  // guarded by mu_
};

// Items and batches are cut as for a GPU: 1/600 s of the device, and four of
// them. The engine keeps `source`. 0 = as the CPU's.
absl::StatusOr<std::unique_ptr<server::AttentionEngine>> MakePacedEngine(
    const server::EngineOptions& options, double flops_per_second,
    const std::shared_ptr<PacedSource>& source);

}  // namespace attendant::testing
