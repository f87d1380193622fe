// An engine that keeps how late each job ended after its deadline.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "server/engine/attention_engine.h"

namespace attendant::testing {

class WatchedEngine final : public server::AttentionEngine {
 public:
  explicit WatchedEngine(std::unique_ptr<server::AttentionEngine> engine)
      : engine_(std::move(engine)) {}

  // Of jobs that ended with an error: from their deadline to when `done` had
  // returned, so that all was given back and counted. Negative = before it.
  std::vector<server::Clock::duration> lateness() const {
    std::lock_guard lock(mu_);
    return lateness_;
  }

  const server::DeviceDescription& device() const override {
    return engine_->device();
  }
  absl::StatusOr<std::shared_ptr<server::AttentionJob>> Admit(
      std::unique_ptr<server::ValidatedRequest> request,
      server::Clock::time_point deadline) override {
    return engine_->Admit(std::move(request), deadline);
  }
  void CopyAsync(int num_parts, std::function<void(int)> copy,
                 std::function<void()> then) override {
    engine_->CopyAsync(num_parts, std::move(copy), std::move(then));
  }
  void Submit(std::shared_ptr<server::AttentionJob> job) override {
    job->done = [this, deadline = job->deadline,
                 done = std::move(job->done)](server::JobResult result) {
      const bool failed = !result.status.ok();
      done(std::move(result));
      if (!failed) return;
      std::lock_guard lock(mu_);
      lateness_.push_back(server::Clock::now() - deadline);
    };
    engine_->Submit(std::move(job));
  }
  void InputArrived(const std::shared_ptr<server::AttentionJob>& job,
                    size_t index) override {
    engine_->InputArrived(job, index);
  }
  void Cancel(const std::shared_ptr<server::AttentionJob>& job) override {
    engine_->Cancel(job);
  }
  void Drain(server::Clock::time_point deadline) override {
    engine_->Drain(deadline);
  }
  server::EngineSnapshot Snapshot() const override {
    return engine_->Snapshot();
  }

 private:
  mutable std::mutex mu_;
  std::vector<server::Clock::duration> lateness_;  // guarded by mu_
  // Ends its jobs when it goes: before what they write to.
  const std::unique_ptr<server::AttentionEngine> engine_;
};

}  // namespace attendant::testing
