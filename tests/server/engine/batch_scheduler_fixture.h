// The fixture of the scheduler's tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/engine/batch_scheduler.h"
#include "server/engine/host_memory_pool.h"
#include "server/request/errors.h"
#include "tests/server/request_builder.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/manual_executor.h"

namespace attendant::server {

using attendant::testing::FakeClock;
using attendant::testing::MakeRequest;
using attendant::testing::ManualExecutor;
using attendant::testing::RequestOptions;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

inline constexpr int64_t kPoolBytes = int64_t{64} << 20;

// A scheduler with a clock that stands and an executor that waits.
class BatchSchedulerTest : public ::testing::Test {
 protected:
  BatchSchedulerTest() {
    options_.limits.max_queued_requests = 1024;
    options_.limits.max_queued_bytes = kPoolBytes;
    options_.limits.max_queued_flops = 1e15;
    options_.limits.host_pool_bytes = kPoolBytes;
    options_.limits.cost_per_byte = 1;
    options_.work_item_bytes = int64_t{1} << 20;
    options_.work_item_flops = 1e12;
    options_.max_batch_bytes = int64_t{4} << 20;
    options_.max_batch_flops = 1e13;
    options_.now = clock_.AsFunction();
    pool_ = *CreatePlainHostPool(kPoolBytes);
    options_.pools.host = pool_.get();
  }

  // After changes of options_.
  void Start() {
    scheduler_ = std::make_unique<BatchScheduler>(options_);
    executor_ = std::make_unique<ManualExecutor>(scheduler_.get());
    scheduler_->SetExecutor(executor_.get());
  }

  // The end of a job, when it came.
  struct Ended {
    bool called = false;
    JobResult result;
  };

  struct Submitted {
    std::shared_ptr<AttentionJob> job;
    std::shared_ptr<Ended> ended = std::make_shared<Ended>();
  };

  absl::StatusOr<std::shared_ptr<AttentionJob>> Admit(
      const RequestOptions& options, Clock::duration timeout = seconds(60)) {
    return scheduler_->Admit(MakeRequest(options), clock_.Now() + timeout);
  }

  Submitted Submit(const RequestOptions& options,
                   Clock::duration timeout = seconds(60)) {
    Submitted submitted;
    auto job = Admit(options, timeout);
    EXPECT_TRUE(job.ok()) << job.status();
    if (!job.ok()) return submitted;
    submitted.job = *std::move(job);
    submitted.job->done = [ended = submitted.ended](JobResult result) {
      EXPECT_FALSE(ended->called);
      ended->called = true;
      ended->result = std::move(result);
    };
    scheduler_->Submit(submitted.job);
    return submitted;
  }

  absl::StatusCode EndOf(const Submitted& submitted) {
    scheduler_->RunDue();
    EXPECT_TRUE(submitted.ended->called);
    return submitted.ended->result.status.code();
  }

  std::vector<const AttentionJob*> JobsOf(const Batch& batch) {
    std::vector<const AttentionJob*> jobs;
    for (const WorkItem& item : batch.items) jobs.push_back(item.job.get());
    return jobs;
  }

  FakeClock clock_;
  BatchScheduler::Options options_;
  std::unique_ptr<HostMemoryPool> pool_;
  std::unique_ptr<BatchScheduler> scheduler_;
  std::unique_ptr<ManualExecutor> executor_;
};

// 1 MiB of q, k, v and O: 1024 rows of 64 floats, four tensors.
inline const RequestOptions kMebibyte{
    .seqlen_q = 1024, .seqlen_kv = 1024, .head_dim = 64};

}  // namespace attendant::server
