// Calls a server as planned and counts what came of it.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/attend_args.h"
#include "client/cpp/cli/bench/latency_histogram.h"

namespace attendant::client::cli {

// Time since some beginning. Thread-safe; tests bring their own.
class LoadClock {
 public:
  virtual ~LoadClock() = default;
  virtual std::chrono::nanoseconds Now() = 0;
  virtual void WaitUntil(std::chrono::nanoseconds time) = 0;
};
LoadClock& SteadyLoadClock();

struct LoadPlan {
  int callers = 1;  // threads, each with one call at a time
  // Calls a second; 0 = closed loop: a caller sends when its last call ended.
  // Open loop: call i is meant to start at a time that does not depend on how
  // the calls before it fare, and its latency counts from that time, also when
  // no caller was free then. So a stall of the server is seen by every call
  // that it kept waiting (no coordinated omission).
  double rate = 0;
  bool poisson = false;  // open loop: random arrivals of that mean rate
  uint64_t seed = 1;     // of the arrivals
  // Ends after either; 0 = no such end, but not both.
  int64_t requests = 0;
  std::chrono::nanoseconds duration{0};
};

enum StageIndex {
  kReceive,
  kQueue,
  kUpload,
  kKernel,
  kDownload,
  kSend,
  kTotal
};
inline constexpr int kNumStages = 7;
extern const std::array<const char*, kNumStages> kStageNames;
std::array<int64_t, kNumStages> StageArray(const StageTimes& times);

struct LoadResult {
  // Answered calls and those that missed their deadline, from the (intended)
  // start; other failures end early and would flatter.
  LatencyHistogram latency;
  LatencyHistogram service;  // answered calls, from when they really started
  std::array<LatencyHistogram, kNumStages> exposed;  // the server's own times
  std::array<double, kNumStages> busy_seconds = {};
  std::map<absl::StatusCode, int64_t> errors;
  absl::Status first_error;
  int64_t answered = 0;
  int64_t retries = 0;
  int64_t bytes_in = 0;  // tensor bytes of answered calls
  int64_t bytes_out = 0;
  int64_t batch_requests = 0;        // sum over answered calls
  ServedBy served_by;                // of the first answer
  std::chrono::nanoseconds wall{0};  // first (intended) start to last end

  int64_t failed() const;
  void Merge(const LoadResult& other);
};

// `call` runs on the callers' threads; `progress` (0..1) on the first one's.
LoadResult RunLoad(
    const LoadPlan& plan, LoadClock& clock,
    const std::function<absl::StatusOr<AttendResult>(int caller)>& call,
    const std::function<void(double done)>& progress = {});

}  // namespace attendant::client::cli
