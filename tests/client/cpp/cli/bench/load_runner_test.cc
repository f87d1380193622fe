#include "client/cpp/cli/bench/load_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace attendant::client::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

// Time passes only where a call or the runner says so.
class ManualClock : public LoadClock {
 public:
  nanoseconds Now() override { return now_; }
  void WaitUntil(nanoseconds time) override { now_ = std::max(now_, time); }
  void Advance(nanoseconds by) { now_ += by; }

 private:
  nanoseconds now_ = seconds(1000);
};

AttendResult Answer() {
  AttendResult result;
  result.input_bytes = 300;
  result.output_bytes = 100;
  result.attempts = 1;
  result.exposed.kernel_ns = 1'000'000;
  result.exposed.total_ns = 2'000'000;
  result.busy.kernel_ns = 1'000'000;
  return result;
}

// Calls take 1 ms; number `stalled` takes a second.
LoadResult RunWithStall(LoadPlan plan, int stalled) {
  ManualClock clock;
  int calls = 0;
  return RunLoad(plan, clock, [&](int) -> absl::StatusOr<AttendResult> {
    clock.Advance(calls++ == stalled ? nanoseconds(seconds(1))
                                     : nanoseconds(milliseconds(1)));
    return Answer();
  });
}

TEST(LoadRunner, OpenLoopShowsAStallInEveryCallItDelayed) {
  LoadPlan plan;
  plan.rate = 200;
  plan.requests = 1000;
  const LoadResult result = RunWithStall(plan, 100);
  EXPECT_EQ(result.answered, 1000);
  // 200 calls were meant to start within that second, and a fifth as many
  // before the backlog was gone: their waits fall from 1 s to nothing.
  EXPECT_GE(result.latency.Quantile(0.99), milliseconds(900));
  EXPECT_GE(result.latency.Quantile(0.90), milliseconds(300));
  EXPECT_LE(result.latency.Quantile(0.50), milliseconds(2));
  // What a measurement from the real start would have said.
  EXPECT_LE(result.service.Quantile(0.99), milliseconds(2));
}

TEST(LoadRunner, ClosedLoopCountsAStallOnce) {
  LoadPlan plan;
  plan.requests = 1000;
  const LoadResult result = RunWithStall(plan, 100);
  EXPECT_LE(result.latency.Quantile(0.99), milliseconds(2));
  EXPECT_EQ(result.latency.max(), seconds(1));
}

TEST(LoadRunner, OpenLoopKeepsTheRate) {
  for (const bool poisson : {false, true}) {
    LoadPlan plan;
    plan.rate = 100;
    plan.poisson = poisson;
    plan.duration = seconds(50);
    const LoadResult result = RunWithStall(plan, -1);
    EXPECT_NEAR(static_cast<double>(result.answered), 5000, poisson ? 300 : 1);
    EXPECT_NEAR(static_cast<double>(result.wall.count()) * 1e-9, 50, 1);
  }
}

TEST(LoadRunner, CountsBytesStagesAndErrors) {
  ManualClock clock;
  LoadPlan plan;
  plan.requests = 100;
  int calls = 0;
  const LoadResult result =
      RunLoad(plan, clock, [&](int) -> absl::StatusOr<AttendResult> {
        clock.Advance(milliseconds(10));
        const int call = calls++;
        if (call % 10 == 3) return absl::DeadlineExceededError("late");
        if (call % 10 == 7) return absl::UnavailableError("gone");
        return Answer();
      });
  EXPECT_EQ(result.answered, 80);
  EXPECT_EQ(result.failed(), 20);
  EXPECT_EQ(result.errors.at(absl::StatusCode::kDeadlineExceeded), 10);
  EXPECT_EQ(result.errors.at(absl::StatusCode::kUnavailable), 10);
  EXPECT_EQ(result.first_error.message(), "late");
  // Missed deadlines are latencies, refusals are not.
  EXPECT_EQ(result.latency.count(), 90);
  EXPECT_EQ(result.service.count(), 80);
  EXPECT_EQ(result.bytes_in, 80 * 300);
  EXPECT_EQ(result.bytes_out, 80 * 100);
  EXPECT_EQ(result.wall, seconds(1));
  EXPECT_EQ(result.exposed[kKernel].count(), 80);
  EXPECT_NEAR(result.busy_seconds[kKernel], 0.08, 1e-9);
  EXPECT_GE(result.exposed[kTotal].Quantile(0.5), milliseconds(2));
}

TEST(LoadRunner, EveryCallerWorksAndProgressReachesTheEnd) {
  LoadPlan plan;
  plan.callers = 8;
  plan.requests = 400;
  std::vector<std::atomic<int>> calls(8);
  double done = 0;
  const LoadResult result = RunLoad(
      plan, SteadyLoadClock(),
      [&](int caller) -> absl::StatusOr<AttendResult> {
        // The first calls wait for each other, so that no caller is idle.
        ++calls[caller];
        if (calls[caller] == 1) {
          for (std::atomic<int>& other : calls) {
            while (other == 0) std::this_thread::yield();
          }
        }
        return Answer();
      },
      [&](double share) { done = share; });
  EXPECT_EQ(result.answered, 400);
  for (const std::atomic<int>& count : calls) EXPECT_GT(count, 0);
  EXPECT_GT(done, 0);
}

}  // namespace
}  // namespace attendant::client::cli
