// The traffic that a fault must not touch: calls by the client library, each
// begun when it is due whatever became of those before it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "client/cpp/attendant_client.h"
#include "client/cpp/cli/bench/latency_histogram.h"

namespace attendant::testing {

class SteadyTraffic {
 public:
  struct Options {
    std::string target;
    client::ClientOptions client = {};
    double rate = 200;  // calls a second
    int callers = 16;   // threads
    std::chrono::milliseconds deadline{20'000};
  };
  struct Outcome {
    int64_t answered = 0, failed = 0;
    int64_t wrong = 0;    // answered, but not with what is known by hand
    int64_t retries = 0;  // that answers took
    client::cli::LatencyHistogram latency;  // from the intended start
    absl::Status first_error;
  };

  explicit SteadyTraffic(Options options);
  ~SteadyTraffic() { Stop(); }

  // Calls that ended so far. Any thread.
  int64_t ended() const { return ended_; }
  // Blocks until so many more calls ended.
  void WaitForCalls(int64_t count) const;
  // Ends what is under way; the same outcome every time.
  const Outcome& Stop();

 private:
  void Run();

  const Options options_;
  const std::chrono::steady_clock::time_point begin_;
  std::optional<client::Client> client_;
  std::atomic<bool> stopped_{false};
  std::atomic<int64_t> next_{0};
  std::atomic<int64_t> ended_{0};
  std::mutex mu_;
  Outcome outcome_;  // guarded by mu_
  std::vector<std::thread> threads_;
};

}  // namespace attendant::testing
