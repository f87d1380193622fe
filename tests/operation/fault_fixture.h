// What the suites of faults share: steady traffic that must not notice, and the
// record of it.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/server_process.h"
#include "tests/operation/measured_load.h"
#include "tests/operation/operation_process.h"
#include "tests/operation/record.h"
#include "tests/operation/steady_traffic.h"

namespace attendant::testing {

// False if `condition` did not come true in time.
template <typename Condition>
bool ComesTrue(const Condition& condition,
               std::chrono::milliseconds within = std::chrono::seconds(20)) {
  const auto end = std::chrono::steady_clock::now() + within;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

class FaultTest : public ::testing::Test {
 protected:
  FaultTest()
      : folder_(std::filesystem::temp_directory_path() /
                ("attendant-faults-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~FaultTest() override { std::filesystem::remove_all(folder_); }

  static std::vector<std::string> Flags(
      const std::vector<std::string>& more = {}) {
    std::vector<std::string> flags = {"--backend=cpu", "--cpu_threads=1",
                                      "--host_pool_bytes=64M",
                                      "--lame_duck_seconds=0"};
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  }

  static SteadyTraffic::Options TrafficTo(const std::string& target) {
    SteadyTraffic::Options options;
    options.target = target;
    return options;
  }

  // Calls to be made while a fault lasts.
  static int64_t Calls() { return IsRecording() ? 600 : 100; }

  // The traffic saw `most_failed` failures at most, and nothing wrong.
  static void Untouched(const std::string& section, const std::string& outcome,
                        SteadyTraffic* traffic, Record* record,
                        int64_t most_failed = 0) {
    const SteadyTraffic::Outcome& seen = traffic->Stop();
    EXPECT_GT(seen.answered, 0) << section;
    EXPECT_LE(seen.failed, most_failed) << section << seen.first_error;
    EXPECT_EQ(seen.wrong, 0) << section;
    record->Set("outcome", outcome);
    record->Set("others_per_second", 200);
    record->Set("others_answered", seen.answered);
    record->Set("others_retries", seen.retries);
    record->Set("others_p99_ms", Milliseconds(seen.latency.Quantile(0.99)));
    record->AtMost("others_failed", static_cast<double>(seen.failed),
                   static_cast<double>(most_failed));
    record->AtMost("others_wrong", static_cast<double>(seen.wrong), 0);
  }

  const std::filesystem::path folder_;
};

}  // namespace attendant::testing
