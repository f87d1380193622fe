#include "client/cpp/cli/watch/watch_frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace attendant::client::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kBefore[] = R"(attendant_ready 1
attendant_healthy 1
attendant_requests_finished_total{method="Attend",code="OK"} 10
attendant_requests_finished_total{method="Attend",code="CANCELLED"} 1
attendant_received_bytes_total 0
attendant_stage_duration_seconds_bucket{stage="kernel",le="0.001"} 10
attendant_stage_duration_seconds_bucket{stage="kernel",le="+Inf"} 10
)";
constexpr char kAfter[] = R"(attendant_ready 1
attendant_healthy 1
attendant_requests_finished_total{method="Attend",code="OK"} 30
attendant_requests_finished_total{method="Attend",code="CANCELLED"} 3
attendant_requests_finished_total{method="other",code="OK"} 99
attendant_received_bytes_total 4194304
attendant_queued_requests 7
attendant_device_memory_bytes{device="cuda:0",kind="used"} 1048576
attendant_gpu_utilization_ratio{device="cuda:0"} 0.5
attendant_gpu_power_watts{device="cuda:0"} 300
attendant_stage_duration_seconds_bucket{stage="kernel",le="0.001"} 30
attendant_stage_duration_seconds_bucket{stage="kernel",le="+Inf"} 30
)";

TEST(WatchFrame, RatesAreOfTheTimeBetween) {
  ServerInfo info;
  info.version = "1.2.3";
  info.devices.emplace_back().name = "a card";
  const auto frame =
      WatchFrame(info, MetricSamples(kBefore), MetricSamples(kAfter), 2);
  EXPECT_EQ(frame["requests_per_s"], 11);
  EXPECT_EQ(frame["errors_per_s"]["CANCELLED"], 1);
  EXPECT_FALSE(frame["errors_per_s"].contains("OK"));
  EXPECT_EQ(frame["in_bytes_per_s"], 2 << 20);
  EXPECT_EQ(frame["queued_requests"], 7);
  EXPECT_EQ(frame["stages"]["kernel"]["p50_ms"], 0.5);
  EXPECT_TRUE(frame["stages"]["upload"]["p50_ms"].is_null());
  EXPECT_EQ(frame["gpu"]["utilization"], 0.5);
  const std::string text = WatchText(frame);
  for (const char* part :
       {"1.2.3 on a card: ready", "11.0/s", "in 2 MiB/s", "7 waiting",
        "used 1 MiB", "50 % busy, 300 W", "CANCELLED 1.0/s"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  int lines = 0;
  size_t widest = 0;
  for (size_t begin = 0; begin < text.size(); ++lines) {
    const size_t end = text.find('\n', begin);
    widest = std::max(widest, end - begin);
    begin = end + 1;
  }
  EXPECT_LE(lines, 24);
  EXPECT_LE(widest, 80);
}

TEST(WatchFrame, SaysWhatIsWrong) {
  const MetricSamples sick("attendant_ready 1\nattendant_healthy 0\n");
  EXPECT_THAT(WatchText(WatchFrame({}, sick, sick, 1)), HasSubstr("UNHEALTHY"));
  const MetricSamples leaving("attendant_ready 0\nattendant_healthy 1\n");
  const auto frame = WatchFrame({}, leaving, leaving, 0);
  EXPECT_THAT(WatchText(frame), HasSubstr("not ready"));
  EXPECT_FALSE(frame.contains("gpu"));
  EXPECT_THAT(WatchText(frame), Not(HasSubstr("gpu")));
}

}  // namespace
}  // namespace attendant::client::cli
