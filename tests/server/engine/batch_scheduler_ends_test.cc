// How jobs of the scheduler end, and who is let in.
#include "server/engine/batch_scheduler.h"
#include "tests/server/engine/batch_scheduler_fixture.h"

namespace attendant::server {
namespace {

TEST_F(BatchSchedulerTest, FiftyExpireBehindABusyDeviceWithoutALaunch) {
  Start();
  const Submitted blocker = Submit(kMebibyte);
  Batch busy = executor_->Pull();
  std::vector<Submitted> jobs;
  for (int i = 0; i < 50; ++i) jobs.push_back(Submit({}, milliseconds(50)));
  clock_.Advance(milliseconds(49));
  EXPECT_EQ(scheduler_->RunDue(), 0);
  clock_.Advance(milliseconds(1));
  EXPECT_EQ(scheduler_->RunDue(), 50);
  for (const Submitted& job : jobs) {
    EXPECT_EQ(job.ended->result.status.code(),
              absl::StatusCode::kDeadlineExceeded);
    EXPECT_EQ(job.ended->result.stage, Stage::kQueue);
    EXPECT_EQ(job.job->output, nullptr);
  }
  EXPECT_THAT(executor_->Pull().items, IsEmpty());
  executor_->Finish(std::move(busy));
  const EngineSnapshot snapshot = scheduler_->Snapshot();
  EXPECT_EQ(snapshot.launches, 1);
  EXPECT_EQ(snapshot.queued_requests, 0);
  EXPECT_EQ(EndOf(blocker), absl::StatusCode::kOk);
}

TEST_F(BatchSchedulerTest, TheHundredAndFirstGoesNextWhenAHundredCancel) {
  options_.max_batch_bytes = 1 << 20;
  Start();
  const Submitted blocker = Submit(kMebibyte);
  Batch busy = executor_->Pull();
  const int64_t used_before = scheduler_->Snapshot().host_pool_used_bytes;
  std::vector<Submitted> jobs;
  for (int i = 0; i < 100; ++i) jobs.push_back(Submit({.seqlen_q = 100}));
  const Submitted last = Submit({}, seconds(60));
  for (const Submitted& job : jobs) scheduler_->Cancel(job.job);
  EXPECT_EQ(scheduler_->Snapshot().queued_requests, 1);
  EXPECT_EQ(scheduler_->RunDue(), 100);
  // Their memory is back before anything else ran.
  const int64_t bytes = BlockBytes(*last.job->request);
  EXPECT_EQ(scheduler_->Snapshot().host_pool_used_bytes, used_before + bytes);
  for (const Submitted& job : jobs) {
    EXPECT_EQ(job.ended->result.status.code(), absl::StatusCode::kCancelled);
  }
  Batch next = executor_->Pull();
  EXPECT_THAT(JobsOf(next), ElementsAre(last.job.get()));
  executor_->Finish(std::move(next));
  executor_->Finish(std::move(busy));
  EXPECT_EQ(scheduler_->Snapshot().launches, 2);
}

TEST_F(BatchSchedulerTest, ARunningJobIsAnsweredAtOnceAndFreedWhenSafe) {
  Start();
  const Submitted job = Submit(kMebibyte, milliseconds(20));
  Batch batch = executor_->Pull();
  EXPECT_TRUE(scheduler_->Reached(batch.items[0], Stage::kKernel));
  clock_.Advance(milliseconds(20));
  EXPECT_EQ(EndOf(job), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(job.ended->result.stage, Stage::kKernel);
  EXPECT_FALSE(scheduler_->Reached(batch.items[0], Stage::kDownload));
  EXPECT_GT(pool_->used_bytes(), 0);
  executor_->Finish(std::move(batch));
  EXPECT_EQ(pool_->used_bytes(), 0);
}

TEST_F(BatchSchedulerTest, TheRestOfACancelledLargeJobIsNeverPulled) {
  options_.max_batch_bytes = 1 << 20;
  Start();
  RequestOptions large = kMebibyte;
  large.batch = 8;
  const Submitted job = Submit(large);
  Batch batch = executor_->Pull();
  EXPECT_EQ(batch.items.size(), 1u);
  scheduler_->Cancel(job.job);
  EXPECT_EQ(EndOf(job), absl::StatusCode::kCancelled);
  EXPECT_THAT(executor_->Pull().items, IsEmpty());
  executor_->Finish(std::move(batch));
  EXPECT_EQ(pool_->used_bytes(), 0);
  EXPECT_EQ(scheduler_->Snapshot().queued_flops, 0);
}

TEST_F(BatchSchedulerTest, OneFailedItemEndsItsJobAlone) {
  options_.max_batch_bytes = 1 << 20;
  Start();
  RequestOptions large = kMebibyte;
  large.batch = 2;
  const Submitted bad = Submit(large);
  const Submitted good = Submit({});
  Batch batch = executor_->Pull();
  EXPECT_THAT(JobsOf(batch), ElementsAre(bad.job.get()));
  executor_->Finish(std::move(batch), absl::InternalError("broken"));
  EXPECT_EQ(EndOf(bad), absl::StatusCode::kInternal);
  batch = executor_->Pull();
  EXPECT_THAT(JobsOf(batch), ElementsAre(good.job.get()));
  executor_->Finish(std::move(batch));
  EXPECT_EQ(EndOf(good), absl::StatusCode::kOk);
}

TEST_F(BatchSchedulerTest, CancelBeforeSubmitEndsTheJobAtItsSubmit) {
  Start();
  auto job = Admit({});
  ASSERT_TRUE(job.ok());
  scheduler_->Cancel(*job);
  EXPECT_EQ(scheduler_->RunDue(), 0);
  absl::Status status;
  (*job)->done = [&](JobResult result) { status = result.status; };
  scheduler_->Submit(*job);
  scheduler_->RunDue();
  EXPECT_EQ(pool_->used_bytes(), 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
}

TEST_F(BatchSchedulerTest, CancelAfterTheEndChangesNothing) {
  Start();
  const Submitted job = Submit({});
  executor_->Finish(executor_->Pull());
  scheduler_->Cancel(job.job);
  EXPECT_EQ(EndOf(job), absl::StatusCode::kOk);
  scheduler_->Cancel(job.job);
  EXPECT_EQ(scheduler_->RunDue(), 0);
}

TEST_F(BatchSchedulerTest, ALastSmallAnswerIsToldByTheExecutorsThread) {
  options_.told_at_once_bytes = int64_t{1} << 20;
  Start();
  const Submitted job = Submit({});
  executor_->Finish(executor_->Pull());
  EXPECT_TRUE(job.ended->called);
  EXPECT_EQ(scheduler_->RunDue(), 0);
  EXPECT_TRUE(scheduler_->WaitIdle(Clock::now()));
}

TEST_F(BatchSchedulerTest, OtherEndsAreToldByTheTimersThread) {
  options_.told_at_once_bytes = int64_t{1} << 20;
  options_.max_batch_bytes = 1;
  Start();
  const Submitted large = Submit(
      {.num_q_heads = 32, .seqlen_q = 1024, .seqlen_kv = 8, .head_dim = 64});
  executor_->Finish(executor_->Pull());
  EXPECT_FALSE(large.ended->called);
  scheduler_->RunDue();
  const Submitted first = Submit({}), second = Submit({});
  executor_->Finish(executor_->Pull());
  EXPECT_FALSE(first.ended->called);
  Batch failed = executor_->Pull();
  for (WorkItem& item : failed.items) {
    item.status = absl::InternalError("no resources");
  }
  scheduler_->RunDue();
  EXPECT_TRUE(first.ended->called);
  scheduler_->Finish(std::move(failed));
  EXPECT_FALSE(second.ended->called);
  EXPECT_EQ(EndOf(second), absl::StatusCode::kInternal);
}

TEST_F(BatchSchedulerTest, ADroppedJobGivesEverythingBack) {
  Start();
  auto job = Admit({.ordering_key = "s"});
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(scheduler_->Snapshot().queued_requests, 1);
  job->reset();
  const EngineSnapshot snapshot = scheduler_->Snapshot();
  EXPECT_EQ(snapshot.queued_requests, 0);
  EXPECT_EQ(snapshot.queued_bytes, 0);
  EXPECT_EQ(snapshot.queued_flops, 0);
  EXPECT_EQ(snapshot.host_pool_used_bytes, 0);
  EXPECT_TRUE(scheduler_->WaitIdle(Clock::now()));
}

TEST_F(BatchSchedulerTest, RejectsWhatCanNeverFit) {
  options_.limits.host_pool_bytes = 1 << 20;
  Start();
  const auto job = Admit(kMebibyte);
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(job.status().message()),
              HasSubstr("at most 1048576 bytes, the host memory pool"));
}

TEST_F(BatchSchedulerTest, RejectsWorkBeyondTheQueuesBound) {
  options_.limits.max_queued_flops = 1e6;
  Start();
  const auto job = Admit(kMebibyte);
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(job.status().message()), HasSubstr("FLOPs"));
}

TEST_F(BatchSchedulerTest, RejectsWhenQueueIsFull) {
  options_.limits.max_queued_requests = 3;
  Start();
  std::vector<Submitted> jobs;
  for (int i = 0; i < 3; ++i) jobs.push_back(Submit({}));
  const auto refused = Admit({});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("queued requests is 3"));
  EXPECT_GT(RetryPushbackMs(refused.status()), 0);
  executor_->Finish(executor_->Pull());
  EXPECT_TRUE(Admit({}).ok());
}

TEST_F(BatchSchedulerTest, RejectsWhenQueuedBytesOrWorkAreFull) {
  options_.limits.max_queued_bytes = (3 << 20) + 65536;
  Start();
  std::vector<Submitted> jobs;
  for (int i = 0; i < 2; ++i) jobs.push_back(Submit(kMebibyte));
  EXPECT_TRUE(Admit(kMebibyte).ok());  // dropped again
  jobs.push_back(Submit(kMebibyte));
  EXPECT_EQ(Admit(kMebibyte).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_LE(scheduler_->Snapshot().queued_bytes,
            options_.limits.max_queued_bytes);
}

TEST_F(BatchSchedulerTest, RejectsWhenThePoolIsFullAndNeverGrows) {
  options_.limits.max_queued_bytes = int64_t{1} << 40;
  Start();
  std::vector<Submitted> jobs;
  absl::Status refused;
  for (int i = 0; i < 100 && refused.ok(); ++i) {
    auto job = Admit(kMebibyte);
    refused = job.status();
    if (job.ok()) jobs.push_back({*std::move(job)});
  }
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("host memory pool"));
  EXPECT_LE(pool_->used_bytes(), kPoolBytes);
  EXPECT_GE(jobs.size(), 60u);
}

TEST_F(BatchSchedulerTest, DeviceMemoryIsReservedAtAdmissionToo) {
  RangePool device_pool(3 << 20);
  std::byte device_memory[1];
  options_.pools.device = &device_pool;
  options_.pools.device_memory = device_memory;
  options_.limits.device_pool_bytes = device_pool.capacity_bytes();
  Start();
  const Submitted one = Submit(kMebibyte);
  auto two = Admit(kMebibyte);
  ASSERT_TRUE(two.ok());
  EXPECT_EQ(Admit(kMebibyte).status().code(),
            absl::StatusCode::kResourceExhausted);
  two->reset();
  scheduler_->Cancel(one.job);
  EXPECT_EQ(device_pool.used_bytes(), 0);
  RequestOptions huge = kMebibyte;
  huge.batch = 4;
  EXPECT_EQ(Admit(huge).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(BatchSchedulerTest, APassedDeadlineIsRefusedAtOnce) {
  Start();
  EXPECT_EQ(Admit({}, Clock::duration::zero()).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(pool_->used_bytes(), 0);
}

TEST_F(BatchSchedulerTest, ADeadlineThatCantBeMetIsRefusedAtOnce) {
  Start();
  const Submitted measured = Submit(kMebibyte);
  Batch batch = executor_->Pull();
  clock_.Advance(seconds(1));  // a mebibyte takes a second
  executor_->Finish(std::move(batch));
  EXPECT_EQ(EndOf(measured), absl::StatusCode::kOk);
  // An idle device is tried all the same: else one slow measurement would shut
  // it to such work for good.
  EXPECT_TRUE(Admit(kMebibyte, milliseconds(100)).ok());
  std::vector<Submitted> jobs;
  for (int i = 0; i < 5; ++i) jobs.push_back(Submit(kMebibyte));
  EXPECT_EQ(Admit(kMebibyte, milliseconds(100)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  const auto refused = Admit(kMebibyte, milliseconds(1100));
  // Its deadline is past max_age: the five go first.
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_GE(RetryPushbackMs(refused.status()), 1);
  EXPECT_TRUE(Admit(kMebibyte, seconds(10)).ok());
}

TEST_F(BatchSchedulerTest, TinyWorkDoesNotMakeTheDeviceLookSlow) {
  Start();
  for (int i = 0; i < 100; ++i) {
    const Submitted job = Submit({});
    Batch batch = executor_->Pull();
    clock_.Advance(std::chrono::microseconds(50));
    executor_->Finish(std::move(batch));
    EXPECT_EQ(EndOf(job), absl::StatusCode::kOk);
  }
  EXPECT_TRUE(Admit(kMebibyte, milliseconds(100)).ok());
}

TEST_F(BatchSchedulerTest, ASickDeviceEndsEverythingAndAdmitsNothing) {
  Start();
  const Submitted running = Submit({});
  Batch batch = executor_->Pull();
  const Submitted queued = Submit({});
  auto admitted = Admit({});
  scheduler_->ReportUnhealthy(absl::InternalError("illegal address"));
  EXPECT_EQ(EndOf(running), absl::StatusCode::kUnavailable);
  EXPECT_EQ(EndOf(queued), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Admit({}).status().code(), absl::StatusCode::kUnavailable);
  absl::Status status;
  (*admitted)->done = [&](JobResult result) { status = result.status; };
  scheduler_->Submit(*admitted);
  scheduler_->RunDue();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  executor_->Finish(std::move(batch));
  const EngineSnapshot snapshot = scheduler_->Snapshot();
  EXPECT_FALSE(snapshot.healthy);
  EXPECT_THAT(snapshot.unhealthy_reason, HasSubstr("illegal address"));
  EXPECT_EQ(snapshot.host_pool_used_bytes, 0);
}

TEST_F(BatchSchedulerTest, DrainingRefusesTheNewAndFinishesTheOld) {
  Start();
  const Submitted job = Submit({});
  scheduler_->CloseAdmission();
  EXPECT_EQ(Admit({}).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(scheduler_->WaitIdle(Clock::now()));
  executor_->Finish(executor_->Pull());
  EXPECT_EQ(EndOf(job), absl::StatusCode::kOk);
  EXPECT_TRUE(scheduler_->WaitIdle(Clock::now()));
}

TEST_F(BatchSchedulerTest, TheSnapshotCountsEachJobOnce) {
  options_.max_batch_bytes = 1 << 20;
  Start();
  std::vector<Submitted> jobs;
  for (int i = 0; i < 4; ++i) jobs.push_back(Submit(kMebibyte));
  Batch batch = executor_->Pull();
  EngineSnapshot snapshot = scheduler_->Snapshot();
  EXPECT_EQ(snapshot.queued_requests, 3);
  EXPECT_EQ(snapshot.running_requests, 1);
  EXPECT_EQ(snapshot.queued_bytes, 3 * BlockBytes(*jobs[0].job->request));
  EXPECT_DOUBLE_EQ(snapshot.queued_flops, 3 * jobs[0].job->request->flops);
  executor_->Finish(std::move(batch));
  snapshot = scheduler_->Snapshot();
  EXPECT_EQ(snapshot.running_requests, 0);
  EXPECT_DOUBLE_EQ(snapshot.launched_flops, jobs[0].job->request->flops);
}

TEST_F(BatchSchedulerTest, MixedShapesShareLaunches) {
  Start();
  std::vector<Submitted> jobs;
  for (int i = 0; i < 40; ++i) {
    jobs.push_back(Submit({.seqlen_q = i % 2 == 0 ? 512 : 2048}));
  }
  int batches = 0;
  for (Batch batch = executor_->Pull(); !batch.items.empty();
       batch = executor_->Pull()) {
    executor_->Finish(std::move(batch));
    ++batches;
  }
  EXPECT_LE(batches, 40 / 4);
}

TEST_F(BatchSchedulerTest, ItemsOfAJobInPartsRunAsTheirInputArrives) {
  Start();
  auto request = MakeRequest(
      {.batch = 3, .seqlen_q = 1024, .seqlen_kv = 1024, .head_dim = 64});
  request->arrives_in_parts = true;
  const auto job =
      *scheduler_->Admit(std::move(request), clock_.Now() + seconds(60));
  ASSERT_EQ(job->ranges.size(), 3u);
  bool ended = false;
  std::vector<int64_t> done;
  job->done = [&](JobResult result) {
    EXPECT_TRUE(result.status.ok());
    EXPECT_EQ(done.size(), 3u);
    ended = true;
  };
  job->item_done = [&](const ItemRange& range) {
    done.push_back(range.batch_begin);
  };
  job->input_keeper = std::make_shared<HostBlock>(std::move(job->input));
  scheduler_->Submit(job);
  EXPECT_THAT(executor_->Pull().items, IsEmpty());
  scheduler_->InputArrived(job, 2);
  Batch batch = executor_->Pull();
  ASSERT_EQ(batch.items.size(), 1u);
  EXPECT_EQ(batch.items[0].range.batch_begin, 2);
  EXPECT_TRUE(batch.items[0].first);
  executor_->Finish(std::move(batch));
  scheduler_->RunDue();
  EXPECT_THAT(done, ElementsAre(2));
  EXPECT_FALSE(ended);
  scheduler_->InputArrived(job, 0);
  job->input_complete = clock_.Now();
  scheduler_->InputArrived(job, 1);
  batch = executor_->Pull();
  EXPECT_EQ(batch.items.size(), 2u);
  executor_->Finish(std::move(batch));
  scheduler_->RunDue();
  EXPECT_TRUE(ended);
  EXPECT_EQ(job->input_keeper, nullptr);
}

TEST_F(BatchSchedulerTest,
       AJobInPartsThatEndsEarlyKeepsItsInputUntilItsCaller) {
  Start();
  auto request = MakeRequest(kMebibyte);
  request->arrives_in_parts = true;
  auto job = *scheduler_->Admit(std::move(request), clock_.Now() + seconds(1));
  absl::StatusCode code = absl::StatusCode::kOk;
  job->done = [&](JobResult result) { code = result.status.code(); };
  auto input = std::make_shared<HostBlock>(std::move(job->input));
  job->input_keeper = input;
  scheduler_->Submit(job);
  clock_.Advance(seconds(2));
  scheduler_->RunDue();
  EXPECT_EQ(code, absl::StatusCode::kDeadlineExceeded);
  scheduler_->InputArrived(job, 0);  // late: nothing happens
  EXPECT_THAT(executor_->Pull().items, IsEmpty());
  job.reset();
  EXPECT_GE(pool_->used_bytes(), input->bytes());
  input.reset();
  EXPECT_EQ(pool_->used_bytes(), 0);
}

}  // namespace
}  // namespace attendant::server
