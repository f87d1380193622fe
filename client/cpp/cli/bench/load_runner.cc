#include "client/cpp/cli/bench/load_runner.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace attendant::client::cli {
namespace {

using std::chrono::nanoseconds;

class SteadyClock : public LoadClock {
 public:
  nanoseconds Now() override {
    return std::chrono::steady_clock::now().time_since_epoch();
  }
  // The kernel wakes a sleeper some 50 us late: the rest is spun away.
  void WaitUntil(nanoseconds time) override {
    constexpr nanoseconds kSpin{100'000};
    if (time - Now() > kSpin) {
      std::this_thread::sleep_until(
          std::chrono::steady_clock::time_point(time - kSpin));
    }
    while (Now() < time) std::this_thread::yield();
  }
};

// Hands out calls until the plan is at its end. Thread-safe.
class Schedule {
 public:
  Schedule(const LoadPlan& plan, nanoseconds begin)
      : plan_(plan), begin_(begin), random_(plan.seed) {}

  // The intended start of the next call (closed loop: `now`), or none.
  std::optional<nanoseconds> Next(nanoseconds now) {
    std::lock_guard lock(mutex_);
    if (plan_.requests > 0 && given_ >= plan_.requests) return std::nullopt;
    nanoseconds start = now;
    if (plan_.rate > 0) {
      start = begin_ + nanoseconds(std::llround(offset_ * 1e9));
    }
    if (plan_.duration.count() > 0 && start >= begin_ + plan_.duration) {
      return std::nullopt;
    }
    ++given_;
    if (plan_.rate > 0) {
      offset_ +=
          plan_.poisson
              ? std::exponential_distribution<double>(plan_.rate)(random_)
              : 0;
      if (!plan_.poisson) offset_ = static_cast<double>(given_) / plan_.rate;
    }
    return start;
  }

  double Done(nanoseconds now) {
    std::lock_guard lock(mutex_);
    double done = 0;
    if (plan_.requests > 0) {
      done = static_cast<double>(given_) / static_cast<double>(plan_.requests);
    }
    if (plan_.duration.count() > 0) {
      done = std::max(done, static_cast<double>((now - begin_).count()) /
                                static_cast<double>(plan_.duration.count()));
    }
    return std::min(done, 1.0);
  }

 private:
  const LoadPlan plan_;
  const nanoseconds begin_;
  std::mutex mutex_;
  int64_t given_ = 0;  // all below guarded by mutex_
  double offset_ = 0;  // seconds
  std::mt19937_64 random_;
};

void Count(const absl::StatusOr<AttendResult>& answer, nanoseconds latency,
           nanoseconds service, LoadResult* result) {
  if (!answer.ok()) {
    if (result->errors.empty()) result->first_error = answer.status();
    ++result->errors[answer.status().code()];
    if (absl::IsDeadlineExceeded(answer.status())) {
      result->latency.Record(latency);
    }
    return;
  }
  result->latency.Record(latency);
  result->service.Record(service);
  const auto exposed = StageArray(answer->exposed);
  const auto busy = StageArray(answer->busy);
  for (int s = 0; s < kNumStages; ++s) {
    result->exposed[s].Record(nanoseconds(exposed[s]));
    result->busy_seconds[s] += static_cast<double>(busy[s]) * 1e-9;
  }
  if (result->answered == 0) result->served_by = answer->served_by;
  ++result->answered;
  result->retries += answer->attempts - 1;
  result->bytes_in += answer->input_bytes;
  result->bytes_out += answer->output_bytes;
  result->batch_requests += answer->batch_requests;
}

}  // namespace

const std::array<const char*, kNumStages> kStageNames = {
    "receive", "queue", "upload", "kernel", "download", "send", "total"};

std::array<int64_t, kNumStages> StageArray(const StageTimes& t) {
  return {t.receive_ns,  t.queue_ns, t.upload_ns, t.kernel_ns,
          t.download_ns, t.send_ns,  t.total_ns};
}

LoadClock& SteadyLoadClock() {
  static SteadyClock clock;
  return clock;
}

int64_t LoadResult::failed() const {
  int64_t sum = 0;
  for (const auto& [code, count] : errors) sum += count;
  return sum;
}

void LoadResult::Merge(const LoadResult& other) {
  if (errors.empty()) first_error = other.first_error;
  if (answered == 0) served_by = other.served_by;
  latency.Merge(other.latency);
  service.Merge(other.service);
  for (int s = 0; s < kNumStages; ++s) {
    exposed[s].Merge(other.exposed[s]);
    busy_seconds[s] += other.busy_seconds[s];
  }
  for (const auto& [code, count] : other.errors) errors[code] += count;
  answered += other.answered;
  retries += other.retries;
  bytes_in += other.bytes_in;
  bytes_out += other.bytes_out;
  batch_requests += other.batch_requests;
}

LoadResult RunLoad(
    const LoadPlan& plan, LoadClock& clock,
    const std::function<absl::StatusOr<AttendResult>(int caller)>& call,
    const std::function<void(double done)>& progress) {
  const nanoseconds begin = clock.Now();
  Schedule schedule(plan, begin);
  std::vector<LoadResult> results(plan.callers);
  const auto run_caller = [&](int caller) {
    while (const auto intended = schedule.Next(clock.Now())) {
      clock.WaitUntil(*intended);
      const nanoseconds started = clock.Now();
      const absl::StatusOr<AttendResult> answer = call(caller);
      const nanoseconds ended = clock.Now();
      Count(answer, ended - *intended, ended - started, &results[caller]);
      if (caller == 0 && progress) progress(schedule.Done(ended));
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int c = 1; c < plan.callers; ++c) threads.emplace_back(run_caller, c);
    run_caller(0);
  }
  LoadResult all;
  for (const LoadResult& result : results) all.Merge(result);
  all.wall = clock.Now() - begin;
  return all;
}

}  // namespace attendant::client::cli
