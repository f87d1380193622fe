// An engine for tests of what stands around it: computes with the plain
// reference, holds jobs back when told to, and is never in a hurry.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/reference/oracle.h"
#include "server/engine/attention_engine.h"

namespace attendant::testing {

class FakeHostPool final : public server::HostMemoryPool {
 public:
  absl::StatusOr<server::HostBlock> Allocate(int64_t bytes) override {
    std::lock_guard lock(mu_);
    used_ += bytes;
    return server::HostBlock(this, new std::byte[bytes + 1], bytes);
  }
  int64_t capacity_bytes() const override { return capacity_; }
  void set_capacity_bytes(int64_t bytes) { capacity_ = bytes; }
  int64_t used_bytes() const override {
    std::lock_guard lock(mu_);
    return used_;
  }

 private:
  void Release(std::byte* data, int64_t bytes) override {
    delete[] data;
    std::lock_guard lock(mu_);
    used_ -= bytes;
  }
  mutable std::mutex mu_;
  int64_t used_ = 0;                                 // guarded by mu_
  std::atomic<int64_t> capacity_{int64_t{1} << 40};  // said, not held to
};

class FakeAttentionEngine final : public server::AttentionEngine {
 public:
  using JobPtr = std::shared_ptr<server::AttentionJob>;

  FakeAttentionEngine() : worker_([this] { Work(); }) {
    device_.name = "fake";
    device_.uuid = "FAKE-0";
  }
  ~FakeAttentionEngine() override {
    {
      std::lock_guard lock(mu_);
      stop_ = true;
      hold_ = false;
    }
    woken_.notify_all();
    worker_.join();
    // gRPC may still hold a reply that it has sent.
    while (pool_.used_bytes() != 0) std::this_thread::yield();
  }

  // Jobs wait until held no more.
  void Hold(bool hold) {
    std::lock_guard lock(mu_);
    hold_ = hold;
    woken_.notify_all();
  }
  // Blocks until so many jobs have been submitted since the start.
  void WaitForSubmitted(int64_t count) {
    std::unique_lock lock(mu_);
    woken_.wait(lock, [&] { return submitted_ >= count; });
  }
  int64_t computed() const {
    std::lock_guard lock(mu_);
    return computed_;
  }
  void RefuseWith(absl::Status status) {
    std::lock_guard lock(mu_);
    admit_status_ = std::move(status);
  }
  // From now on, O and LSE are all bits set (NaN).
  void AnswerWrong() { wrong_ = true; }
  // What the pool says of itself; nothing is refused.
  void SetPoolCapacity(int64_t bytes) { pool_.set_capacity_bytes(bytes); }
  void BreakWith(std::string reason) {
    std::lock_guard lock(mu_);
    unhealthy_reason_ = std::move(reason);
  }

  const server::DeviceDescription& device() const override { return device_; }

  absl::StatusOr<JobPtr> Admit(
      std::unique_ptr<server::ValidatedRequest> request,
      server::Clock::time_point deadline) override {
    {
      std::lock_guard lock(mu_);
      if (!admit_status_.ok()) return admit_status_;
    }
    auto job = std::make_shared<server::AttentionJob>();
    job->input = std::move(pool_.Allocate(request->input_bytes)).value();
    job->output = std::make_shared<server::HostBlock>(
        std::move(pool_.Allocate(request->output_block_bytes())).value());
    job->request = std::move(request);
    job->deadline = deadline;
    return job;
  }

  void CopyAsync(int num_parts, std::function<void(int)> copy,
                 std::function<void()> then) override {
    Post([num_parts, copy, then] {
      for (int part = 0; part < num_parts; ++part) copy(part);
      then();
    });
  }

  void Submit(JobPtr job) override {
    std::lock_guard lock(mu_);
    ++submitted_;
    jobs_.push_back(std::move(job));
    woken_.notify_all();
  }

  // Its jobs have one item, which starts at Submit.
  void InputArrived(const JobPtr&, size_t) override {}

  void Cancel(const JobPtr& job) override {
    std::lock_guard lock(mu_);
    for (auto it = jobs_.begin(); it != jobs_.end(); ++it) {
      if (*it != job) continue;
      tasks_.push_back([job = *it] {
        server::JobResult result;
        result.status = absl::CancelledError("cancelled");
        job->input = {};
        job->output = nullptr;
        job->done(std::move(result));
      });
      jobs_.erase(it);
      woken_.notify_all();
      return;
    }
  }

  void Drain(server::Clock::time_point deadline) override {
    std::unique_lock lock(mu_);
    woken_.wait_until(lock, deadline, [&] {
      return jobs_.empty() && tasks_.empty() && !busy_;
    });
  }

  server::EngineSnapshot Snapshot() const override {
    std::lock_guard lock(mu_);
    server::EngineSnapshot snapshot;
    snapshot.queued_requests = static_cast<int64_t>(jobs_.size());
    snapshot.launches = computed_;
    snapshot.host_pool_used_bytes = pool_.used_bytes();
    snapshot.host_pool_capacity_bytes = pool_.capacity_bytes();
    snapshot.healthy = unhealthy_reason_.empty();
    snapshot.unhealthy_reason = unhealthy_reason_;
    return snapshot;
  }

 private:
  void Post(std::function<void()> task) {
    std::lock_guard lock(mu_);
    tasks_.push_back(std::move(task));
    woken_.notify_all();
  }

  void Compute(server::AttentionJob& job) const {
    const auto begin = server::Clock::now();
    kernels::reference::Plain(
        server::Placed(*job.request, job.input.data(), job.output->data()));
    if (wrong_) {
      std::memset(job.output->data(), 0xff,
                  static_cast<size_t>(job.output->bytes()));
    }
    server::JobResult result;
    result.stage = server::Stage::kDownload;
    result.kernel = "fake";
    result.batch_requests = 1;
    result.batch_tokens = job.request->problem.rows_q;
    result.exposed_ns[static_cast<int>(server::Stage::kKernel)] =
        std::chrono::nanoseconds(server::Clock::now() - begin).count();
    job.input = {};
    job.done(std::move(result));
  }

  void Work() {
    std::unique_lock lock(mu_);
    for (;;) {
      woken_.wait(lock, [&] {
        return stop_ || !tasks_.empty() || (!hold_ && !jobs_.empty());
      });
      if (!tasks_.empty()) {
        Run(&lock, std::exchange(tasks_.front(), nullptr));
        tasks_.pop_front();
      } else if (!jobs_.empty()) {
        const JobPtr job = jobs_.front();
        jobs_.pop_front();
        ++computed_;
        Run(&lock, [this, job] { Compute(*job); });
      } else {
        return;
      }
      woken_.notify_all();
    }
  }

  void Run(std::unique_lock<std::mutex>* lock, std::function<void()> task) {
    busy_ = true;
    lock->unlock();
    task();
    task = nullptr;
    lock->lock();
    busy_ = false;
  }

  server::DeviceDescription device_;
  FakeHostPool pool_;
  mutable std::mutex mu_;
  std::condition_variable woken_;
  // Guarded by mu_.
  std::deque<std::function<void()>> tasks_;
  std::deque<JobPtr> jobs_;
  bool hold_ = false;
  bool stop_ = false;
  bool busy_ = false;
  int64_t submitted_ = 0;
  int64_t computed_ = 0;
  absl::Status admit_status_;
  std::string unhealthy_reason_;

  std::atomic<bool> wrong_{false};
  std::thread worker_;
};

}  // namespace attendant::testing
