#include "server/batch_scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/errors.h"
#include "server/host_memory_pool.h"
#include "tests/server/request_builder.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/manual_executor.h"

namespace attendant::server {
namespace {

using attendant::testing::FakeClock;
using attendant::testing::MakeRequest;
using attendant::testing::ManualExecutor;
using attendant::testing::RequestOptions;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kPoolBytes = int64_t{64} << 20;

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
const RequestOptions kMebibyte{
    .seqlen_q = 1024, .seqlen_kv = 1024, .head_dim = 64};

TEST_F(BatchSchedulerTest, OneRequestGoesThrough) {
  Start();
  const Submitted one = Submit({});
  EXPECT_EQ(executor_->wakes(), 1);
  clock_.Advance(milliseconds(3));
  Batch batch = executor_->Pull();
  ASSERT_THAT(JobsOf(batch), ElementsAre(one.job.get()));
  clock_.Advance(milliseconds(4));
  batch.intervals = {{Stage::kKernel, batch.pulled, clock_.Now()}};
  executor_->Finish(std::move(batch));
  EXPECT_EQ(EndOf(one), absl::StatusCode::kOk);
  const JobResult& result = one.ended->result;
  EXPECT_EQ(result.kernel, "manual");
  EXPECT_EQ(result.batch_requests, 1);
  EXPECT_EQ(result.batch_tokens, 8);
  EXPECT_EQ(result.exposed_ns[static_cast<int>(Stage::kQueue)], 3'000'000);
  EXPECT_EQ(result.exposed_ns[static_cast<int>(Stage::kKernel)], 4'000'000);
  ASSERT_NE(one.job->output, nullptr);
}

// The order in which jobs of identities are served, one batch each.
TEST_F(BatchSchedulerTest, IdentitiesShareByWeightWhateverTheyQueue) {
  options_.max_batch_bytes = 1;
  Start();
  const auto submit = [&](const char* identity, double weight) {
    auto request = MakeRequest(kMebibyte);
    request->caller = {identity, weight, 1};
    auto job =
        scheduler_->Admit(std::move(request), clock_.Now() + seconds(60));
    EXPECT_TRUE(job.ok()) << job.status();
    (*job)->done = [](JobResult) {};
    scheduler_->Submit(*job);
    clock_.Advance(milliseconds(1));
  };
  for (int i = 0; i < 12; ++i) submit("greedy", 1);
  std::string order;
  const auto serve = [&](int count) {
    for (int i = 0; i < count; ++i) {
      Batch batch = executor_->Pull();
      ASSERT_EQ(batch.items.size(), 1u);
      order += batch.items[0].job->request->caller.identity[0];
      executor_->Finish(std::move(batch));
      scheduler_->RunDue();
    }
  };
  serve(3);
  for (int i = 0; i < 2; ++i) submit("modest", 1);
  for (int i = 0; i < 4; ++i) submit("paying", 2);
  serve(9);
  // The newcomers claim nothing of the past, and the greedy one's queue no more
  // than its weight.
  EXPECT_EQ(order.substr(0, 3), "ggg");
  const std::string rest = order.substr(3);
  EXPECT_LT(rest.find('m'), 2u) << rest;
  EXPECT_LT(rest.find('g'), 6u) << rest;
  EXPECT_EQ(std::count(rest.begin(), rest.end(), 'm'), 2) << rest;
  EXPECT_EQ(std::count(rest.begin(), rest.end(), 'p'), 4) << rest;
  EXPECT_EQ(std::count(rest.begin(), rest.end(), 'g'), 3) << rest;
}

TEST_F(BatchSchedulerTest, AnIdentityFillsNoMoreOfTheQueueThanItsShare) {
  options_.limits.max_queued_requests = 10;
  Start();
  std::vector<std::shared_ptr<AttentionJob>> jobs;
  const auto admit = [&](const char* identity) {
    auto request = MakeRequest({});
    request->caller = {identity, 1, 0.5};
    auto job =
        scheduler_->Admit(std::move(request), clock_.Now() + seconds(60));
    if (job.ok()) jobs.push_back(*job);
    return job.status();
  };
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(admit("greedy").ok());
  const absl::Status refused = admit("greedy");
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("of 'greedy'"));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(admit("modest").ok());
}

TEST_F(BatchSchedulerTest, AnIdleExecutorTakesWhatIsThereAtOnce) {
  Start();
  EXPECT_THAT(executor_->Pull().items, IsEmpty());
  const Submitted one = Submit({});
  Batch batch = executor_->Pull();
  EXPECT_EQ(batch.items.size(), 1u);
  executor_->Finish(std::move(batch));
}

TEST_F(BatchSchedulerTest, ABatchTakesAllShapesUpToItsBytes) {
  Start();
  std::vector<Submitted> jobs;
  for (int i = 0; i < 5; ++i) jobs.push_back(Submit(kMebibyte));
  for (int i = 0; i < 3; ++i) {
    jobs.push_back(Submit({.num_q_heads = 4, .seqlen_q = 3, .head_dim = 17}));
  }
  Batch batch = executor_->Pull();
  // Four of a mebibyte; the fifth leaves with the small ones.
  EXPECT_EQ(batch.requests, 4);
  executor_->Finish(std::move(batch));
  batch = executor_->Pull();
  EXPECT_EQ(batch.requests, 4);
  executor_->Finish(std::move(batch));
  for (const Submitted& job : jobs)
    EXPECT_EQ(EndOf(job), absl::StatusCode::kOk);
}

TEST_F(BatchSchedulerTest, SmallOnesFillABatchPastALargeOne) {
  options_.max_batch_bytes = 3 << 19;  // 1.5 MiB
  Start();
  const Submitted first = Submit(kMebibyte), second = Submit(kMebibyte);
  const Submitted small = Submit({});
  Batch batch = executor_->Pull();
  EXPECT_THAT(JobsOf(batch), ElementsAre(first.job.get(), small.job.get()));
  executor_->Finish(std::move(batch));
}

TEST_F(BatchSchedulerTest, ASmallRequestIsNotStuckBehindALargeOne) {
  options_.max_batch_bytes = 1 << 20;
  Start();
  RequestOptions large = kMebibyte;
  large.batch = 20;
  const Submitted big = Submit(large);
  executor_->Finish(executor_->Pull());
  clock_.Advance(milliseconds(10));
  const Submitted small = Submit({});
  executor_->Finish(executor_->Pull());
  executor_->Finish(executor_->Pull());
  EXPECT_EQ(EndOf(small), absl::StatusCode::kOk);
  EXPECT_FALSE(big.ended->called);
  for (int i = 0; i < 20; ++i) executor_->Finish(executor_->Pull());
  EXPECT_EQ(EndOf(big), absl::StatusCode::kOk);
}

TEST_F(BatchSchedulerTest, TheEarlierDeadlineGoesFirst) {
  options_.max_batch_bytes = 1 << 10;
  Start();
  const Submitted relaxed = Submit({}, milliseconds(900));
  const Submitted urgent = Submit({}, milliseconds(100));
  Batch batch = executor_->Pull();
  EXPECT_THAT(JobsOf(batch), ElementsAre(urgent.job.get()));
  executor_->Finish(std::move(batch));
}

TEST_F(BatchSchedulerTest, AgeingLetsTheOldGoBeforeShortDeadlines) {
  options_.max_batch_bytes = 1 << 10;
  options_.max_age = milliseconds(1000);
  Start();
  const Submitted old = Submit({}, seconds(60));
  clock_.Advance(milliseconds(950));
  const Submitted urgent = Submit({}, milliseconds(100));
  Batch batch = executor_->Pull();
  EXPECT_THAT(JobsOf(batch), ElementsAre(old.job.get()));
  executor_->Finish(std::move(batch));
}

TEST_F(BatchSchedulerTest, PriorityMovesButDoesNotStarve) {
  options_.max_batch_bytes = 1 << 10;
  Start();
  const Submitted normal = Submit({});
  const Submitted high = Submit({.priority = 100});
  Batch batch = executor_->Pull();
  EXPECT_THAT(JobsOf(batch), ElementsAre(high.job.get()));
  executor_->Finish(std::move(batch));
  clock_.Advance(milliseconds(600));
  const Submitted late = Submit({.priority = 100});
  batch = executor_->Pull();
  EXPECT_THAT(JobsOf(batch), ElementsAre(normal.job.get()));
  executor_->Finish(std::move(batch));
}

TEST_F(BatchSchedulerTest, EqualOrderingKeysRunOneAfterTheOther) {
  Start();
  const Submitted first = Submit({.ordering_key = "s"}, seconds(50));
  const Submitted second = Submit({.ordering_key = "s"}, seconds(1));
  const Submitted other = Submit({.ordering_key = "t"});
  Batch batch = executor_->Pull();
  EXPECT_EQ(batch.requests, 2);
  EXPECT_THAT(executor_->Pull().items, IsEmpty());
  executor_->Finish(std::move(batch));
  batch = executor_->Pull();
  EXPECT_THAT(JobsOf(batch), ElementsAre(second.job.get()));
  executor_->Finish(std::move(batch));
  EXPECT_EQ(EndOf(second), absl::StatusCode::kOk);
}

TEST_F(BatchSchedulerTest, ArrivalOrdersEvenIfTheLaterIsSubmittedFirst) {
  Start();
  auto first = Admit({.ordering_key = "s"});
  ASSERT_TRUE(first.ok());
  const Submitted second = Submit({.ordering_key = "s"});
  EXPECT_THAT(executor_->Pull().items, IsEmpty());
  const int wakes = executor_->wakes();
  first->reset();  // the caller went away before its tensors were there
  EXPECT_GT(executor_->wakes(), wakes) << "the second would wait for ever";
  Batch batch = executor_->Pull();
  EXPECT_THAT(JobsOf(batch), ElementsAre(second.job.get()));
  executor_->Finish(std::move(batch));
}

TEST_F(BatchSchedulerTest, ACancelledHeadLetsTheNextInOrderGo) {
  Start();
  const Submitted first = Submit({.ordering_key = "s"});
  const Submitted second = Submit({.ordering_key = "s"});
  scheduler_->Cancel(first.job);
  Batch batch = executor_->Pull();
  EXPECT_THAT(JobsOf(batch), ElementsAre(second.job.get()));
  executor_->Finish(std::move(batch));
  EXPECT_EQ(EndOf(first), absl::StatusCode::kCancelled);
}

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
  // Their memory is back before anything else ran.
  const int64_t bytes = BlockBytes(*last.job->request);
  EXPECT_EQ(scheduler_->Snapshot().host_pool_used_bytes, used_before + bytes);
  EXPECT_EQ(scheduler_->Snapshot().queued_requests, 1);
  EXPECT_EQ(scheduler_->RunDue(), 100);
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
  EXPECT_EQ(pool_->used_bytes(), 0);
  scheduler_->RunDue();
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
