// Faults of the device, memory that does not suffice, repairs.
#include <algorithm>
#include <cstring>

#include "server/engine/cuda_executor.h"
#include "tests/server/engine/cuda_executor_fixture.h"

namespace attendant::server {
namespace {

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
  ExpectRefusedCallsFailTheirBatchesAlone(kPadded);
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

TEST_F(GpuPlanTest, WhatWentAtOnceIsDownloadedAgainAfterARepair) {
  at_once_bytes_ = int64_t{1} << 20;
  Start();
  port_.repair_flag = 1;
  const auto ended = SubmitHalf();
  StepAll();
  const int downloads = port_.downloads;
  EXPECT_GT(downloads, 0);
  RunAll();
  scheduler_->RunDue();
  EXPECT_TRUE(ended->called && ended->result.status.ok());
  EXPECT_EQ(port_.repairs, 1);
  EXPECT_EQ(port_.downloads, 2 * downloads);
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
