// Order, batches and shares; how jobs end and who is let in is
// batch_scheduler_ends_test.cc's.
#include "server/engine/batch_scheduler.h"

#include <algorithm>

#include "tests/server/engine/batch_scheduler_fixture.h"

namespace attendant::server {
namespace {

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
  for (int i = 0; i < 24; ++i) submit("greedy", 1);
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
  serve(12);  // 32 ms of the device
  for (int i = 0; i < 2; ++i) submit("modest", 1);
  for (int i = 0; i < 25; ++i) submit("paying", 2);
  serve(2 + 25 + 6);
  EXPECT_EQ(order.substr(0, 12), std::string(12, 'g'));
  const std::string rest = order.substr(12);
  // Of the past the newcomers claim 20 ms for their weight, and the greedy
  // one's last item: the modest one's two go before the greedy one's next, and
  // 17 of the paying one's (halves of 2.7 ms).
  const size_t next = rest.find('g');
  EXPECT_LT(rest.rfind('m'), next) << rest;
  EXPECT_EQ(next, 2u + 17) << rest;
  // From then on it is the weights.
  const std::string then = rest.substr(next, 9);
  EXPECT_EQ(std::count(then.begin(), then.end(), 'p'), 6) << rest;
}

TEST_F(BatchSchedulerTest, BatchesAreShortWhileIdentitiesShareTheDevice) {
  options_.work_item_flops = 1e9;  // 3.7 requests; 4 by their bytes
  Start();
  const auto submit = [&](const char* identity, int count) {
    for (int i = 0; i < count; ++i) {
      auto request = MakeRequest(kMebibyte);
      request->caller.identity = identity;
      auto job =
          scheduler_->Admit(std::move(request), clock_.Now() + seconds(60));
      ASSERT_TRUE(job.ok()) << job.status();
      (*job)->done = [](JobResult) {};
      scheduler_->Submit(*job);
    }
  };
  const auto serve = [&] {
    Batch batch = executor_->Pull();
    const size_t items = batch.items.size();
    executor_->Finish(std::move(batch));
    scheduler_->RunDue();
    return items;
  };
  submit("greedy", 12);
  EXPECT_EQ(serve(), 4u);
  submit("modest", 1);
  EXPECT_EQ(serve(), 3u);
  EXPECT_EQ(serve(), 3u);  // of greedy's only, but modest may come again
  submit("greedy", 6);
  clock_.Advance(milliseconds(1001));
  EXPECT_EQ(serve(), 4u);
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

}  // namespace
}  // namespace attendant::server
