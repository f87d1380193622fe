#include "server/monitoring/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <ctime>
#include <map>
#include <thread>

#include "server/monitoring/process_metrics.h"

namespace attendant::server {
namespace {

using ::testing::HasSubstr;

constexpr int kOk = 0, kCancelled = 1, kDeadline = 4, kExhausted = 8;

DeviceDescription TestDevice() {
  DeviceDescription device;
  device.name = "a \"device\"";
  return device;
}

std::string Text(const Metrics& metrics, const EngineSnapshot& engine = {}) {
  return RenderPrometheusText(metrics.Collect(engine, TestDevice(), true));
}

AttendOutcome Answered() {
  AttendOutcome outcome;
  outcome.stage = Stage::kSend;
  outcome.bytes_in = 100;
  outcome.bytes_out = 40;
  outcome.exposed_ns = {1'000'000, 0, 0, 3'000'000, 0, 0};
  outcome.busy_ns = outcome.exposed_ns;
  outcome.total_ns = 4'000'000;
  outcome.batch_requests = 3;
  outcome.batch_tokens = 500;
  return outcome;
}

// Samples of all lines that are not comments.
std::map<std::string, double> Samples(const std::string& text) {
  std::map<std::string, double> samples;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.empty() || line[0] == '#') continue;
    const size_t blank = line.rfind(' ');
    samples[line.substr(0, blank)] = std::atof(line.c_str() + blank);
  }
  return samples;
}

TEST(Metrics, AnswerIsCountedOnceEverywhere) {
  Metrics metrics({"1.2.3", "some compiler"});
  metrics.Started(Method::kAttend);
  metrics.Finished(kOk, Answered());
  auto samples = Samples(Text(metrics));
  EXPECT_EQ(samples["attendant_requests_started_total{method=\"Attend\"}"], 1);
  EXPECT_EQ(samples["attendant_requests_in_flight{method=\"Attend\"}"], 0);
  EXPECT_EQ(samples["attendant_requests_finished_total{method=\"Attend\",code="
                    "\"OK\"}"],
            1);
  EXPECT_EQ(samples["attendant_received_bytes_total"], 100);
  EXPECT_EQ(samples["attendant_sent_bytes_total"], 40);
  EXPECT_EQ(samples["attendant_request_duration_seconds_count"], 1);
  EXPECT_EQ(samples["attendant_request_duration_seconds_sum"], 0.004);
  EXPECT_EQ(samples["attendant_stage_duration_seconds_sum{stage=\"kernel\"}"],
            0.003);
  EXPECT_EQ(samples["attendant_stage_busy_seconds_total{stage=\"receive\"}"],
            0.001);
  EXPECT_EQ(samples["attendant_batch_requests_bucket{le=\"2\"}"], 0);
  EXPECT_EQ(samples["attendant_batch_requests_bucket{le=\"4\"}"], 1);
  EXPECT_EQ(samples["attendant_batch_tokens_sum"], 500);
}

TEST(Metrics, FailuresAreApartByKindAndStage) {
  Metrics metrics({});
  AttendOutcome outcome;
  for (const auto& [code, stage] : {std::pair{kCancelled, Stage::kQueue},
                                    {kDeadline, Stage::kKernel},
                                    {kExhausted, Stage::kReceive}}) {
    metrics.Started(Method::kAttend);
    outcome.stage = stage;
    metrics.Finished(code, outcome);
  }
  auto samples = Samples(Text(metrics));
  EXPECT_EQ(samples["attendant_requests_cancelled_total{stage=\"queue\"}"], 1);
  EXPECT_EQ(samples["attendant_deadlines_missed_total{stage=\"kernel\"}"], 1);
  EXPECT_EQ(samples["attendant_requests_rejected_total{stage=\"receive\"}"], 1);
  EXPECT_EQ(samples["attendant_request_duration_seconds_count"], 0);
}

TEST(Metrics, BucketBordersBelongToTheLowerBucket) {
  HistogramData histogram({1, 2});
  for (const double value : {0.5, 1.0, 1.5, 2.0, 9.0}) histogram.Observe(value);
  EXPECT_THAT(histogram.counts, ::testing::ElementsAre(2, 2, 1));
  EXPECT_EQ(histogram.sum, 14);
}

TEST(Metrics, HistogramsEndWithInfinityAndAgreeWithTheirCount) {
  Metrics metrics({});
  AttendOutcome slow = Answered();
  slow.total_ns = int64_t{100} * 1'000'000'000;
  metrics.Started(Method::kAttend);
  metrics.Finished(kOk, slow);
  auto samples = Samples(Text(metrics));
  EXPECT_EQ(samples["attendant_request_duration_seconds_bucket{le=\"60\"}"], 0);
  EXPECT_EQ(samples["attendant_request_duration_seconds_bucket{le=\"+Inf\"}"],
            1);
}

TEST(Metrics, EveryScrapeUnderLoadConserves) {
  Metrics metrics({});
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; !stop; ++i) {
        metrics.Started(Method::kAttend);
        metrics.Finished((i + t) % 17, Answered());
      }
    });
  }
  for (int scrape = 0; scrape < 200; ++scrape) {
    double started = 0, in_flight = 0, finished = 0, answered = 0;
    for (const auto& [name, value] : Samples(Text(metrics))) {
      if (name.find("method=\"Attend\"") == std::string::npos) continue;
      if (name.find("_started_") != std::string::npos) started = value;
      if (name.find("in_flight") != std::string::npos) in_flight = value;
      if (name.find("_finished_") != std::string::npos) finished += value;
      if (name.find("\"OK\"") != std::string::npos) answered = value;
    }
    ASSERT_EQ(started, finished + in_flight);
    ASSERT_LE(answered, finished);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

TEST(Metrics, EngineGaugesAndCountersAreShown) {
  EngineSnapshot engine;
  engine.queued_requests = 5;
  engine.launches = 9;
  engine.device_peak_bytes = 77;
  engine.healthy = false;
  auto samples = Samples(Text(Metrics({}), engine));
  EXPECT_EQ(samples["attendant_queued_requests"], 5);
  EXPECT_EQ(samples["attendant_launches_total{device=\"cpu:0\"}"], 9);
  EXPECT_EQ(
      samples["attendant_device_memory_bytes{device=\"cpu:0\",kind=\"peak\"}"],
      77);
  EXPECT_EQ(samples["attendant_healthy"], 0);
}

TEST(Metrics, LabelsAreEscaped) {
  EXPECT_THAT(Text(Metrics({"1", "x"})),
              HasSubstr("device_name=\"a \\\"device\\\"\""));
}

TEST(ProcessMetrics, AreThoseOfThisProcess) {
  const ProcessStats stats = ReadProcessStats();
  EXPECT_GT(stats.resident_bytes, 1 << 20);
  EXPECT_GT(stats.virtual_bytes, stats.resident_bytes);
  EXPECT_GE(stats.open_fds, 3);
  EXPECT_GE(stats.max_fds, stats.open_fds);
  EXPECT_GE(stats.threads, 1);
  const double now = std::chrono::duration<double>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count();
  EXPECT_LE(stats.start_time_seconds, now + 2);
  EXPECT_GT(stats.start_time_seconds, now - 86'400);
  // Of processor time, so that a busy machine does not matter; the kernel
  // counts in hundredths.
  const std::clock_t busy_until = std::clock() + CLOCKS_PER_SEC / 20;
  while (std::clock() < busy_until) {
  }
  EXPECT_GT(ReadProcessStats().cpu_seconds, stats.cpu_seconds);
}

}  // namespace
}  // namespace attendant::server
