// What metrics and logs add to a request, a piece at a time and beside nothing.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/log/log.h"
#include "server/log/log_writer.h"
#include "server/monitoring/metrics.h"
#include "tests/operation/record.h"

namespace attendant::testing {
namespace {

using server::AttendOutcome;
using server::Log;
using server::LogLevel;
using server::Method;
using server::Metrics;

int Calls() { return IsRecording() ? 100'000 : 200; }

// Microseconds of a call, the median of rounds.
double Time(int threads, const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> rounds;
  for (int round = 0; round < (IsRecording() ? 9 : 1); ++round) {
    const auto begin = Clock::now();
    {
      std::vector<std::jthread> others;
      for (int t = 0; t < threads; ++t) {
        others.emplace_back([&] {
          for (int i = 0; i < Calls(); ++i) call();
        });
      }
    }
    rounds.push_back(
        std::chrono::duration<double, std::micro>(Clock::now() - begin)
            .count() /
        Calls());
  }
  std::sort(rounds.begin(), rounds.end());
  return rounds[rounds.size() / 2];
}

AttendOutcome Outcome() {
  AttendOutcome outcome;
  outcome.bytes_in = 100'000;
  outcome.bytes_out = 30'000;
  outcome.exposed_ns.fill(20'000);
  outcome.busy_ns.fill(30'000);
  outcome.total_ns = 120'000;
  outcome.batch_requests = 3;
  outcome.batch_tokens = 300;
  return outcome;
}

void CountOne(Metrics* metrics, const AttendOutcome& outcome) {
  metrics->Started(Method::kAttend);
  metrics->Finished(0, outcome);
}

// As the line of an answered request.
void LogOne(const std::string& request_id, const AttendOutcome& outcome) {
  if (!server::LogEnabled(LogLevel::kDebug)) return;
  Log(LogLevel::kDebug, "request answered",
      {{"request_id", request_id},
       {"kernel", "cpu_prefill_f32"},
       {"total_ms", static_cast<double>(outcome.total_ns) * 1e-6},
       {"bytes_in", outcome.bytes_in},
       {"bytes_out", outcome.bytes_out},
       {"batch_requests", outcome.batch_requests}});
}

// Lines of the log go nowhere while this lives, by the server's own writer.
class LogToNull {
 public:
  LogToNull() : file_(open("/dev/null", O_WRONLY | O_CLOEXEC)) {
    writer_ = std::make_unique<server::LogWriter>(file_, 1 << 20);
    server::SetLogSink(
        [this](const std::string& line) { writer_->Append(line); });
  }
  ~LogToNull() {
    server::SetLogSink(nullptr);
    writer_.reset();
    close(file_);
  }

 private:
  const int file_;
  std::unique_ptr<server::LogWriter> writer_;
};

TEST(MetricsCost, OnAndOff) {
  Metrics metrics({"1", "test"});
  const AttendOutcome outcome = Outcome();
  const std::string request_id = "request-0123456789";
  const double nothing = Time(1, [] {});
  const double counted = Time(1, [&] { CountOne(&metrics, outcome); });
  const double contended = Time(4, [&] { CountOne(&metrics, outcome); });
  server::SetLogLevel(LogLevel::kInfo);
  const double silent = Time(1, [&] { LogOne(request_id, outcome); });
  const double by_default = Time(1, [&] {
    CountOne(&metrics, outcome);
    LogOne(request_id, outcome);
  });
  double logged = 0, logged_and_counted = 0;
  const int64_t lost = server::LostLines().no_room;
  {
    const LogToNull quiet;
    server::SetLogLevel(LogLevel::kDebug);
    logged = Time(1, [&] { LogOne(request_id, outcome); });
    logged_and_counted = Time(1, [&] {
      CountOne(&metrics, outcome);
      LogOne(request_id, outcome);
    });
    server::SetLogLevel(LogLevel::kInfo);
  }
  EXPECT_EQ(metrics.started(Method::kAttend),
            metrics.finished(Method::kAttend, 0));
  EXPECT_GT(metrics.started(Method::kAttend), 0);

  Record record("metrics_cost", "microseconds a request");
  record.Set("off", nothing);
  record.Set("metrics", counted);
  record.Set("metrics_from_4_threads_at_once_each", contended);
  record.Set("log_level_info", silent);
  record.Set("log_level_debug_to_dev_null", logged);
  record.Set("share_of_lines_lost",
             static_cast<double>(server::LostLines().no_room - lost) /
                 (2 * 9 * Calls()));
  record.AtMost("metrics_and_log_level_info", by_default, 2);
  record.AtMost("metrics_and_log_level_debug", logged_and_counted, 2);
}

}  // namespace
}  // namespace attendant::testing
