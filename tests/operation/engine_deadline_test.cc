// Deadlines and cancellation behind a busy device, without gRPC: what
// ThreadSanitizer can see whole.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/operation/paced_engine.h"
#include "tests/operation/watched_engine.h"
#include "tests/server/request_builder.h"

namespace attendant::testing {
namespace {

using server::AttentionJob;
using server::Clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// What never comes is a failure, not a test that hangs.
template <typename Condition>
void WaitFor(const Condition& condition) {
  const auto end = Clock::now() + seconds(100);
  while (!condition()) {
    ASSERT_LT(Clock::now(), end);
    std::this_thread::yield();
  }
}

class EngineDeadlineTest : public ::testing::Test {
 protected:
  EngineDeadlineTest() {
    server::EngineOptions options;
    options.host_pool_bytes = int64_t{16} << 20;
    auto engine = MakePacedEngine(options, 0, source_);
    EXPECT_TRUE(engine.ok()) << engine.status();
    engine_ = std::make_unique<WatchedEngine>(*std::move(engine));
    source_->Close();
    Submit(seconds(60));
    WaitFor([&] { return source_->launched_items() == 1; });
  }
  ~EngineDeadlineTest() override { source_->Open(); }

  std::shared_ptr<AttentionJob> Submit(Clock::duration timeout) {
    auto job =
        engine_->Admit(MakeRequest(RequestOptions()), Clock::now() + timeout);
    EXPECT_TRUE(job.ok()) << job.status();
    FillInput(*(*job)->request, 1, (*job)->input.data());
    (*job)->done = [this](server::JobResult result) {
      ++(result.status.ok() ? answered_ : failed_);
    };
    engine_->Submit(*job);
    return *std::move(job);
  }

  std::shared_ptr<PacedSource> source_ = std::make_shared<PacedSource>(0);
  std::atomic<int> answered_{0}, failed_{0};
  std::unique_ptr<WatchedEngine> engine_;
};

TEST_F(EngineDeadlineTest, ExpiredBehindABusyDeviceCostNoLaunch) {
  {
    std::vector<std::jthread> callers;
    for (int c = 0; c < 5; ++c) {
      callers.emplace_back([this] {
        for (int i = 0; i < 10; ++i) Submit(milliseconds(50));
      });
    }
  }
  WaitFor([&] { return failed_ == 50; });
  EXPECT_EQ(source_->launched_items(), 1);
  EXPECT_EQ(engine_->Snapshot().queued_requests, 0);
  source_->Open();
  WaitFor([&] { return answered_ == 1; });
  WaitFor([&] { return engine_->Snapshot().host_pool_used_bytes == 0; });
}

TEST_F(EngineDeadlineTest, OfAHundredAndOneTheOneNotCancelledStartsNext) {
  std::vector<std::shared_ptr<AttentionJob>> jobs;
  for (int i = 0; i < 100; ++i) jobs.push_back(Submit(seconds(60)));
  Submit(seconds(60));
  {
    std::vector<std::jthread> callers;
    for (size_t c = 0; c < 4; ++c) {
      callers.emplace_back([&, c] {
        for (size_t i = c; i < jobs.size(); i += 4) engine_->Cancel(jobs[i]);
      });
    }
  }
  jobs.clear();
  WaitFor([&] { return failed_ == 100; });
  EXPECT_EQ(engine_->Snapshot().queued_requests, 1);
  source_->Open();
  WaitFor([&] { return answered_ == 2; });
  EXPECT_EQ(source_->launched_items(), 2);
  WaitFor([&] { return engine_->Snapshot().host_pool_used_bytes == 0; });
}

}  // namespace
}  // namespace attendant::testing
