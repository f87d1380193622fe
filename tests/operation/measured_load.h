// Load with intended start times, and what became of every call, refusals too.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "attendant/v1/attention.pb.h"
#include "client/cpp/cli/bench/latency_histogram.h"
#include "client/cpp/cli/bench/load_runner.h"

namespace attendant::testing {

struct MeasuredLoad {
  client::cli::LoadResult result;
  client::cli::LatencyHistogram refusals;  // from the call's real start
  int64_t refused = 0;                     // RESOURCE_EXHAUSTED
  int64_t refused_with_pushback = 0;
  int64_t wrong = 0;  // answers of a wrong size

  // Answers a second.
  double goodput() const;
  int64_t all() const { return result.answered + result.failed(); }
};

struct CallerOptions {
  std::string address;
  std::string token;  // empty = none
  std::chrono::milliseconds deadline{20'000};
  int connections = 4;  // that the callers share
};

// Calls Attend without retries, as `plan` says.
MeasuredLoad RunMeasuredLoad(const client::cli::LoadPlan& plan,
                             const CallerOptions& options,
                             const v1::AttendRequest& request);

// A request whose work on a device is 4 * heads * seqlen^2 * 64, in fp16.
v1::AttendRequest LoadRequest(int64_t heads, int64_t seqlen);
double LoadFlops(int64_t heads, int64_t seqlen);

inline double Milliseconds(std::chrono::nanoseconds time) {
  return static_cast<double>(time.count()) * 1e-6;
}

}  // namespace attendant::testing
