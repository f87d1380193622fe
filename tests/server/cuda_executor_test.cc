// The CUDA executor's logic on a fake device; cuda_engine_test has the real
// one.
#include "server/cuda_executor.h"

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

#include "server/batch_scheduler.h"
#include "server/host_memory_pool.h"
#include "tests/server/fake_device_port.h"
#include "tests/server/request_builder.h"
#include "tests/testing/fake_clock.h"

namespace attendant::server {
namespace {

using attendant::testing::FakeClock;
using attendant::testing::FakeDevicePort;
using attendant::testing::FillInput;
using attendant::testing::MakeRequest;
using attendant::testing::RequestOptions;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using Queue = DevicePort::Queue;

constexpr int64_t kHostBytes = int64_t{16} << 20;
constexpr int64_t kDeviceBytes = int64_t{32} << 20;
constexpr std::byte kCanary{0xa7};

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

  kernels::cpu::ThreadPool pool_;
  FakeDevicePort port_;
  seconds stuck_after_{0};
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

const RequestOptions kCut{.batch = 3,
                          .num_q_heads = 4,
                          .num_kv_heads = 2,
                          .seqlen_q = 128,
                          .seqlen_kv = 160,
                          .head_dim = 32};
const RequestOptions kPadded{.batch = 3,
                             .num_q_heads = 4,
                             .num_kv_heads = 2,
                             .seqlen_q = 130,
                             .seqlen_kv = 160,
                             .head_dim = 32,
                             .lens_q = {130, 0, 77},
                             .lens_kv = {160, 9, 0}};
const RequestOptions kPacked{.batch = 4,
                             .num_q_heads = 4,
                             .num_kv_heads = 4,
                             .head_dim = 24,
                             .lens_q = {200, 1, 0, 90},
                             .lens_kv = {150, 300, 7, 90},
                             .packed = true};

TEST_F(CudaExecutorTest, AnswersAreThoseOfTheWholeRequestBitByBit) {
  Start();
  std::vector<Submitted> jobs;
  uint64_t seed = 1;
  for (const RequestOptions& base : {kCut, kPadded, kPacked}) {
    for (const bool heads_first : {false, true}) {
      RequestOptions options = base;
      options.heads_first = heads_first && !base.packed;
      jobs.push_back(Submit(options, seed++));
      options.dtype = kernels::DataType::kBFloat16;
      options.causal = true;
      jobs.push_back(Submit(options, seed++));
    }
  }
  RunAll();
  for (const Submitted& job : jobs) ExpectRightAnswer(job);
  EXPECT_GT(port_.launches, 1);
  const EngineSnapshot snapshot = scheduler_->Snapshot();
  EXPECT_EQ(snapshot.launches, port_.launches);
  EXPECT_EQ(snapshot.uploaded_bytes, port_.uploaded_bytes);
  EXPECT_EQ(snapshot.running_requests, 0);
  EXPECT_EQ(device_pool_->used_bytes(), 0);
}

TEST_F(CudaExecutorTest, ARequestWithNothingToComputeIsAnsweredWithoutLaunch) {
  Start();
  const Submitted none = Submit({.batch = 0});
  const Submitted no_rows = Submit({.seqlen_q = 0});
  RunAll();
  EXPECT_TRUE(EndOf(none).ok());
  EXPECT_TRUE(EndOf(no_rows).ok());
  EXPECT_EQ(none.ended->result.kernel, "cpu");
  EXPECT_EQ(port_.launches, 0);
}

TEST_F(CudaExecutorTest, ThreeBatchesAreUnderWay) {
  scheduling_.max_batch_bytes = 1;
  Start();
  std::vector<Submitted> jobs;
  for (int i = 0; i < 4; ++i) jobs.push_back(Submit({}, i));
  StepAll();
  EXPECT_EQ(scheduler_->Snapshot().running_requests, 3);
  // While the first computes, the second is uploaded; it is not launched.
  port_.Run(Queue::kUpload);
  port_.Run(Queue::kUpload);
  StepAll();
  EXPECT_EQ(port_.launches, 1);
  port_.Run(Queue::kKernel);
  StepAll();
  EXPECT_EQ(port_.launches, 2);
  EXPECT_EQ(scheduler_->Snapshot().running_requests, 3);
  port_.Run(Queue::kDownload);
  StepAll();
  EXPECT_EQ(scheduler_->Snapshot().queued_requests, 0);
  RunAll();
  for (const Submitted& job : jobs) ExpectRightAnswer(job);
}

TEST_F(CudaExecutorTest, ShortLaunchesFollowEachOtherWithoutAGap) {
  scheduling_.max_batch_bytes = 1;
  scheduling_.assumed_flops_per_second = 1e12;
  Start();
  std::vector<Submitted> jobs;
  for (int i = 0; i < 3; ++i) jobs.push_back(Submit({}, i));
  StepAll();
  while (port_.Run(Queue::kUpload)) StepAll();
  EXPECT_EQ(port_.launches, 3);
  RunAll();
  for (const Submitted& job : jobs) ExpectRightAnswer(job);
}

TEST_F(CudaExecutorTest, TheNextLaunchIsGivenShortlyBeforeTheEnd) {
  scheduling_.max_batch_bytes = 1;
  scheduling_.assumed_flops_per_second = 4096 / 0.010;  // 10 ms each
  Start();
  const Submitted first = Submit({}, 1), second = Submit({}, 2);
  StepAll();
  while (port_.Run(Queue::kUpload)) StepAll();
  clock_.Advance(milliseconds(9));
  StepAll();
  EXPECT_EQ(port_.launches, 1);
  clock_.Advance(std::chrono::microseconds(800));
  StepAll();
  EXPECT_EQ(port_.launches, 2);
  RunAll();
  ExpectRightAnswer(first);
  ExpectRightAnswer(second);
}

TEST_F(CudaExecutorTest, StageTimesAddUp) {
  Start();
  const Submitted job = Submit({});
  clock_.Advance(milliseconds(1));
  StepAll();
  clock_.Advance(milliseconds(2));
  port_.Run(Queue::kUpload);
  StepAll();
  clock_.Advance(milliseconds(4));
  port_.Run(Queue::kKernel);
  StepAll();
  clock_.Advance(milliseconds(8));
  port_.Run(Queue::kDownload);
  StepAll();
  ExpectRightAnswer(job);
  const auto& exposed = job.ended->result.exposed_ns;
  EXPECT_EQ(exposed[static_cast<int>(Stage::kQueue)], 1'000'000);
  EXPECT_EQ(exposed[static_cast<int>(Stage::kUpload)], 2'000'000);
  EXPECT_EQ(exposed[static_cast<int>(Stage::kKernel)], 4'000'000);
  EXPECT_EQ(exposed[static_cast<int>(Stage::kDownload)], 8'000'000);
}

TEST_F(CudaExecutorTest, FiftyExpireBehindABusyDeviceWithoutALaunch) {
  Start();
  const Submitted blocker = Submit({});
  StepAll();
  port_.Run(Queue::kUpload);
  StepAll();
  ASSERT_EQ(port_.launches, 1);
  std::vector<Submitted> jobs;
  for (int i = 0; i < 50; ++i) jobs.push_back(Submit({}, i, milliseconds(50)));
  StepAll();
  while (port_.Run(Queue::kUpload)) StepAll();
  clock_.Advance(milliseconds(50));
  EXPECT_EQ(scheduler_->RunDue(), 50);
  RunAll();
  EXPECT_EQ(port_.launches, 1);
  for (const Submitted& job : jobs) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(EndOf(job)));
  }
  ExpectRightAnswer(blocker);
  EXPECT_EQ(device_pool_->used_bytes(), 0);
}

TEST_F(CudaExecutorTest, OthersOfABatchGoOnWhenOneIsCancelledBeforeLaunch) {
  Start();
  const Submitted kept = Submit({}, 1), cancelled = Submit({}, 2);
  StepAll();
  scheduler_->Cancel(cancelled.job);
  EXPECT_TRUE(absl::IsCancelled(EndOf(cancelled)));
  RunAll();
  ExpectRightAnswer(kept);
  EXPECT_EQ(kept.ended->result.batch_requests, 2);
}

TEST_F(CudaExecutorTest, MemoryOfACancelledUploadComesBackAfterTheUpload) {
  Start();
  const Submitted job = Submit({});
  StepAll();
  scheduler_->Cancel(job.job);
  EXPECT_TRUE(absl::IsCancelled(EndOf(job)));
  EXPECT_GT(host_pool_->used_bytes(), 0);
  port_.Run(Queue::kUpload);
  StepAll();
  EXPECT_EQ(host_pool_->used_bytes(), 0);
  EXPECT_EQ(device_pool_->used_bytes(), 0);
  EXPECT_EQ(port_.launches, 0);
}

TEST_F(CudaExecutorTest, WhatEndedDuringTheKernelIsNotDownloaded) {
  Start();
  const Submitted job = Submit({});
  StepAll();
  port_.Run(Queue::kUpload);
  StepAll();
  scheduler_->Cancel(job.job);
  port_.Run(Queue::kKernel);
  StepAll();
  EXPECT_FALSE(port_.Run(Queue::kDownload));
  EXPECT_EQ(host_pool_->used_bytes(), 0);
  EXPECT_FALSE(executor_->busy());
}

TEST_F(CudaExecutorTest, AStickyErrorEndsEveryJobAsUnavailable) {
  scheduling_.max_batch_bytes = 1;
  Start();
  std::vector<Submitted> jobs;
  for (int i = 0; i < 5; ++i) jobs.push_back(Submit({}, i));
  StepAll();
  port_.FailNext("query", FakeDevicePort::StickyError());
  StepAll();
  for (const Submitted& job : jobs) {
    EXPECT_TRUE(absl::IsUnavailable(EndOf(job))) << EndOf(job);
  }
  const EngineSnapshot snapshot = scheduler_->Snapshot();
  EXPECT_FALSE(snapshot.healthy);
  EXPECT_THAT(snapshot.unhealthy_reason, HasSubstr("illegal address"));
  EXPECT_EQ(snapshot.host_pool_used_bytes, 0);
  EXPECT_FALSE(executor_->busy());
  EXPECT_FALSE(executor_->Step());
}

TEST_F(CudaExecutorTest, AKernelThatNeverEndsIsGivenUp) {
  stuck_after_ = seconds(30);
  scheduling_.max_batch_bytes = 1;
  Start();
  std::vector<Submitted> jobs;
  for (int i = 0; i < 5; ++i) {
    jobs.push_back(Submit({}, i, std::chrono::hours(1)));
  }
  StepAll();
  port_.Run(Queue::kUpload);
  StepAll();
  EXPECT_EQ(port_.launches, 1);
  clock_.Advance(seconds(29));
  StepAll();
  EXPECT_TRUE(scheduler_->Snapshot().healthy);
  clock_.Advance(seconds(2));
  StepAll();
  for (const Submitted& job : jobs) {
    EXPECT_TRUE(absl::IsUnavailable(EndOf(job))) << EndOf(job);
  }
  EXPECT_FALSE(scheduler_->Snapshot().healthy);
  EXPECT_THAT(scheduler_->Snapshot().unhealthy_reason,
              HasSubstr("did not end a batch"));
  EXPECT_FALSE(executor_->busy());
}

TEST_F(CudaExecutorTest, AnIdleDeviceIsNotStuck) {
  stuck_after_ = seconds(30);
  Start();
  clock_.Advance(seconds(3600));
  StepAll();
  const Submitted job = Submit({}, 1, std::chrono::hours(1));
  StepAll();
  clock_.Advance(seconds(20));
  RunAll();
  ExpectRightAnswer(job);
  EXPECT_TRUE(scheduler_->Snapshot().healthy);
}

TEST_F(CudaExecutorTest, ARefusedCallFailsItsBatchAndTheNextIsRight) {
  for (const char* what : {"upload", "launch", "download", "mark"}) {
    SCOPED_TRACE(what);
    Start();
    const Submitted bad = Submit(kPadded);
    port_.FailNext(what, absl::InternalError("no resources"));
    RunAll();
    EXPECT_TRUE(absl::IsInternal(EndOf(bad)));
    const Submitted good = Submit(kPadded);
    RunAll();
    ExpectRightAnswer(good);
    good.job->output.reset();
    EXPECT_EQ(host_pool_->used_bytes(), 0);
    EXPECT_EQ(device_pool_->used_bytes(), 0);
  }
}

TEST_F(CudaExecutorTest, ABatchTooLargeForTheScratchMemoryIsCutInTwo) {
  // Together they need more than each alone: tiles of one, partials of another.
  const RequestOptions prefill{
      .seqlen_q = 64, .seqlen_kv = 64, .head_dim = 256};
  const RequestOptions decode{
      .num_q_heads = 16, .seqlen_q = 1, .seqlen_kv = 4096, .head_dim = 128};
  scheduling_.work_item_bytes = scheduling_.max_batch_bytes = 8 << 20;
  const std::vector<kernels::AttentionProblem> both = {
      MakeRequest(prefill)->problem, MakeRequest(decode)->problem};
  const auto workspace = [&](std::span<const kernels::AttentionProblem> of) {
    const auto plan = kernels::PlanAttention(device_properties_, of);
    return plan.ok() ? plan->workspace_bytes() : 0;
  };
  const std::span problems(both);
  const int64_t alone =
      std::max(workspace(problems.first(1)), workspace(problems.last(1)));
  const int64_t room = (alone + 255) / 256 * 256;
  ASSERT_GT(workspace(problems), room);
  Start(DevicePort::kNumSlots * LaunchScratch::kControlBytes + room);
  std::vector<Submitted> jobs;
  for (int i = 0; i < 3; ++i) {
    jobs.push_back(Submit(prefill, i));
    jobs.push_back(Submit(decode, i));
  }
  RunAll();
  for (const Submitted& job : jobs) ExpectRightAnswer(job);
  EXPECT_GT(port_.launches, 1);
}

TEST_F(CudaExecutorTest, ARequestTooLargeForTheScratchMemorySaysSo) {
  Start(DevicePort::kNumSlots * LaunchScratch::kControlBytes + 256);
  const Submitted decode =
      Submit({.num_q_heads = 4, .seqlen_q = 1, .seqlen_kv = 4096});
  RunAll();
  const absl::Status status = EndOf(decode);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("scratch memory"));
  EXPECT_EQ(host_pool_->used_bytes(), 0);
}

TEST_F(CudaExecutorTest, ItsThreadServesManySubmittersAndStops) {
  port_.automatic = true;
  scheduling_.now = [] { return Clock::now(); };
  Start();
  executor_->Start();
  std::thread timer([this] { scheduler_->RunTimer(); });
  std::atomic<int> right{0}, cancelled{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&, caller] {
      for (int call = 0; call < 40; ++call) {
        const RequestOptions& options = call % 2 == 0 ? kPadded : kPacked;
        auto job =
            scheduler_->Admit(MakeRequest(options), Clock::now() + seconds(60));
        ASSERT_TRUE(job.ok()) << job.status();
        FillInput(*(*job)->request, caller, (*job)->input.data());
        const auto expected = Expected(**job);
        std::promise<JobResult> done;
        (*job)->done = [&](JobResult result) { done.set_value(result); };
        scheduler_->Submit(*job);
        if (call % 5 == 0) scheduler_->Cancel(*job);
        const JobResult result = done.get_future().get();
        if (absl::IsCancelled(result.status)) {
          ++cancelled;
        } else if (result.status.ok() &&
                   std::memcmp((*job)->output->data(), expected.data(),
                               static_cast<size_t>(
                                   (*job)->request->output_bytes)) == 0) {
          ++right;
        }
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(right + cancelled, 120);
  executor_->Stop();
  scheduler_->StopTimer();
  timer.join();
  EXPECT_FALSE(executor_->busy());
  EXPECT_EQ(device_pool_->used_bytes(), 0);
}

#ifdef ATTENDANT_WITH_CUDA
// Plans of a GPU's kernels need no GPU; what they would compute is left out.
class GpuPlanTest : public CudaExecutorTest {
 protected:
  GpuPlanTest() {
    port_.computes = false;
    device_properties_ = {.compute_capability = 90,
                          .num_sms = 132,
                          .shared_memory_per_block_optin = 232448};
  }

  std::shared_ptr<Ended> SubmitHalf() {
    auto job =
        scheduler_->Admit(MakeRequest({.seqlen_q = 64,
                                       .seqlen_kv = 64,
                                       .head_dim = 64,
                                       .dtype = kernels::DataType::kBFloat16}),
                          clock_.Now() + seconds(60));
    EXPECT_TRUE(job.ok()) << job.status();
    auto ended = std::make_shared<Ended>();
    (*job)->done = [ended](JobResult result) {
      ended->called = true;
      ended->result = std::move(result);
    };
    scheduler_->Submit(*std::move(job));
    return ended;
  }
};

TEST_F(GpuPlanTest, ARaisedFlagRepairsOnceBeforeTheDownload) {
  Start();
  port_.repair_flag = 1;
  const auto ended = SubmitHalf();
  RunAll();
  scheduler_->RunDue();
  ASSERT_TRUE(ended->called);
  EXPECT_TRUE(ended->result.status.ok()) << ended->result.status;
  EXPECT_EQ(ended->result.kernel, "sm90");
  EXPECT_EQ(port_.launches, 1);
  EXPECT_EQ(port_.repairs, 1);
  EXPECT_EQ(scheduler_->Snapshot().repairs, 1);
}

TEST_F(GpuPlanTest, WithoutAFlagNothingIsRepaired) {
  Start();
  const auto ended = SubmitHalf();
  RunAll();
  scheduler_->RunDue();
  EXPECT_TRUE(ended->called && ended->result.status.ok());
  EXPECT_EQ(port_.repairs, 0);
}

TEST_F(GpuPlanTest, ARefusedRepairFailsTheBatch) {
  Start();
  port_.repair_flag = 1;
  port_.FailNext("repair", absl::InternalError("no resources"));
  const auto ended = SubmitHalf();
  RunAll();
  scheduler_->RunDue();
  ASSERT_TRUE(ended->called);
  EXPECT_TRUE(absl::IsInternal(ended->result.status));
  EXPECT_EQ(host_pool_->used_bytes(), 0);
}
#endif  // ATTENDANT_WITH_CUDA

TEST_F(CudaExecutorTest, NoReplyShowsWhatThePoolsHeld) {
  Start();
  RequestOptions options = kPadded;
  const Submitted job = Submit(options);
  RunAll();
  ExpectRightAnswer(job);
  const ValidatedRequest& request = *job.job->request;
  const std::byte* output = job.job->output->data();
  // Four canary bytes in a row can't be an answer: 0xa7a7a7a7 is -4.7e-15.
  const std::byte four[4] = {kCanary, kCanary, kCanary, kCanary};
  const auto shows = [&](int64_t begin, int64_t bytes) {
    return std::search(output + begin, output + begin + bytes, four,
                       four + 4) != output + begin + bytes;
  };
  EXPECT_FALSE(shows(0, request.output_bytes));
  EXPECT_FALSE(shows(request.lse_offset, request.lse_bytes));
}

}  // namespace
}  // namespace attendant::server
