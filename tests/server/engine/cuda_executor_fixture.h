// The fixture of the GPU executor's tests: a fake device, a clock that stands.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/engine/batch_scheduler.h"
#include "server/engine/cuda_executor.h"
#include "server/engine/host_memory_pool.h"
#include "tests/server/fake_device_port.h"
#include "tests/server/request_builder.h"
#include "tests/testing/fake_clock.h"

namespace attendant::server {

using attendant::testing::FakeClock;
using attendant::testing::FakeDevicePort;
using attendant::testing::FillInput;
using attendant::testing::MakeRequest;
using attendant::testing::RequestOptions;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using Queue = DevicePort::Queue;

inline constexpr int64_t kHostBytes = int64_t{16} << 20;
inline constexpr int64_t kDeviceBytes = int64_t{32} << 20;
inline constexpr std::byte kCanary{0xa7};

class CudaExecutorTest : public ::testing::Test {
 protected:
  CudaExecutorTest()
      : pool_(2),
        port_(&pool_),
        host_memory_(
            std::make_shared<std::vector<std::byte>>(kHostBytes, kCanary)),
        device_(kDeviceBytes + 256, kCanary),
        host_scratch_(1 << 20) {
    host_pool_ = MakeHostPool(host_memory_->data(), kHostBytes, host_memory_);
    scheduling_.limits.max_queued_requests = 1000;
    scheduling_.limits.max_queued_bytes = kHostBytes;
    scheduling_.limits.max_queued_flops = 1e15;
    scheduling_.limits.host_pool_bytes = kHostBytes;
    scheduling_.work_item_bytes = 64 << 10;
    scheduling_.work_item_flops = 1e12;
    scheduling_.max_batch_bytes = 256 << 10;
    scheduling_.max_batch_flops = 1e13;
    scheduling_.assumed_flops_per_second = 1e6;  // everything takes long
    scheduling_.now = clock_.AsFunction();
    device_properties_.num_sms = 2;
  }

  void Start(int64_t scratch_bytes = int64_t{16} << 20) {
    device_pool_ = std::make_unique<RangePool>(kDeviceBytes - scratch_bytes);
    scheduling_.limits.device_pool_bytes = device_pool_->capacity_bytes();
    scheduling_.pools.host = host_pool_.get();
    scheduling_.pools.device = device_pool_.get();
    scheduling_.pools.device_memory = device_.data();
    scheduler_ = std::make_unique<BatchScheduler>(scheduling_);
    CudaExecutor::Options options;
    options.device = device_properties_;
    options.device_memory = device_.data();
    options.device_scratch = device_.data() + kDeviceBytes - scratch_bytes;
    options.device_scratch_bytes = scratch_bytes;
    options.host_scratch = host_scratch_.data();
    options.host_scratch_bytes = static_cast<int64_t>(host_scratch_.size());
    options.stuck_after = stuck_after_;
    options.at_once_bytes = at_once_bytes_;
    options.now = clock_.AsFunction();
    executor_ =
        std::make_unique<CudaExecutor>(options, scheduler_.get(), &port_);
    scheduler_->SetExecutor(executor_.get());
    ASSERT_TRUE(executor_->Prepare().ok());
  }

  struct Ended {
    bool called = false;
    JobResult result;
  };
  struct Submitted {
    std::shared_ptr<AttentionJob> job;
    std::shared_ptr<Ended> ended = std::make_shared<Ended>();
    std::vector<std::byte> expected;  // output block
  };

  Submitted Submit(const RequestOptions& options, uint64_t seed = 1,
                   Clock::duration timeout = seconds(60)) {
    Submitted submitted;
    auto job = scheduler_->Admit(MakeRequest(options), clock_.Now() + timeout);
    EXPECT_TRUE(job.ok()) << job.status();
    if (!job.ok()) return submitted;
    submitted.job = *std::move(job);
    FillInput(*submitted.job->request, seed, submitted.job->input.data());
    submitted.expected = Expected(*submitted.job);
    submitted.job->done = [ended = submitted.ended](JobResult result) {
      ended->called = true;
      ended->result = std::move(result);
    };
    scheduler_->Submit(submitted.job);
    return submitted;
  }

  // What the kernel says to the request alone and whole, on the host.
  std::vector<std::byte> Expected(const AttentionJob& job) {
    const ValidatedRequest& request = *job.request;
    std::vector<std::byte> output(request.output_block_bytes());
    FillWithEmptyRows(request, output.data());
    const auto problem = Placed(request, job.input.data(), output.data());
    const auto plan = kernels::PlanAttention(device_properties_, {&problem, 1});
    EXPECT_TRUE(plan.ok()) << plan.status();
    std::vector<std::byte> workspace(plan->workspace_bytes() + 256);
    kernels::LaunchContext context;
    context.thread_pool = &pool_;
    const auto address = reinterpret_cast<uintptr_t>(workspace.data());
    context.workspace = workspace.data() + (256 - address % 256);
    EXPECT_TRUE(plan->Launch(context).ok());
    return output;
  }

  void ExpectRightAnswer(const Submitted& submitted) {
    scheduler_->RunDue();
    ASSERT_TRUE(submitted.ended->called);
    ASSERT_TRUE(submitted.ended->result.status.ok())
        << submitted.ended->result.status;
    const ValidatedRequest& request = *submitted.job->request;
    const std::byte* output = submitted.job->output->data();
    EXPECT_EQ(std::memcmp(output, submitted.expected.data(),
                          static_cast<size_t>(request.output_bytes)),
              0);
    EXPECT_EQ(std::memcmp(output + request.lse_offset,
                          submitted.expected.data() + request.lse_offset,
                          static_cast<size_t>(request.lse_bytes)),
              0);
  }

  absl::Status EndOf(const Submitted& submitted) {
    scheduler_->RunDue();
    EXPECT_TRUE(submitted.ended->called);
    return submitted.ended->result.status;
  }

  void StepAll() {
    while (executor_->Step()) {
    }
  }
  // Lets the device work until nothing is left.
  void RunAll() {
    do {
      StepAll();
    } while (port_.Run(Queue::kUpload) || port_.Run(Queue::kKernel) ||
             port_.Run(Queue::kDownload));
  }

  // The device refuses each call once: that batch fails, the next one is right,
  // and nothing stays held.
  void ExpectRefusedCallsFailTheirBatchesAlone(const RequestOptions& options) {
    for (const char* what : {"upload", "launch", "download", "mark"}) {
      SCOPED_TRACE(what);
      Start();
      const Submitted bad = Submit(options);
      port_.FailNext(what, absl::InternalError("no resources"));
      RunAll();
      EXPECT_TRUE(absl::IsInternal(EndOf(bad)));
      const Submitted good = Submit(options);
      RunAll();
      ExpectRightAnswer(good);
      good.job->output.reset();
      EXPECT_EQ(host_pool_->used_bytes(), 0);
      EXPECT_EQ(device_pool_->used_bytes(), 0);
    }
  }

  kernels::cpu::ThreadPool pool_;
  FakeDevicePort port_;
  seconds stuck_after_{0};
  int64_t at_once_bytes_ = 0;
  FakeClock clock_;
  std::shared_ptr<std::vector<std::byte>> host_memory_;
  std::vector<std::byte> device_;
  std::vector<std::byte> host_scratch_;
  kernels::DeviceProperties device_properties_;
  BatchScheduler::Options scheduling_;
  std::unique_ptr<HostMemoryPool> host_pool_;
  std::unique_ptr<RangePool> device_pool_;
  std::unique_ptr<BatchScheduler> scheduler_;
  std::unique_ptr<CudaExecutor> executor_;
};

inline const RequestOptions kCut{.batch = 3,
                                 .num_q_heads = 4,
                                 .num_kv_heads = 2,
                                 .seqlen_q = 128,
                                 .seqlen_kv = 160,
                                 .head_dim = 32};
inline const RequestOptions kPadded{.batch = 3,
                                    .num_q_heads = 4,
                                    .num_kv_heads = 2,
                                    .seqlen_q = 130,
                                    .seqlen_kv = 160,
                                    .head_dim = 32,
                                    .lens_q = {130, 0, 77},
                                    .lens_kv = {160, 9, 0}};
inline const RequestOptions kPacked{.batch = 4,
                                    .num_q_heads = 4,
                                    .num_kv_heads = 4,
                                    .head_dim = 24,
                                    .lens_q = {200, 1, 0, 90},
                                    .lens_kv = {150, 300, 7, 90},
                                    .packed = true};

}  // namespace attendant::server
