#include "server/log/log.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

namespace attendant::server {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::system_clock;

TEST(Log, LineIsOneJsonObjectWithTypedFields) {
  const system_clock::time_point time{milliseconds(1'700'000'000'123)};
  const std::string line =
      RenderLogLine(time, LogLevel::kWarning, "queue is full",
                    {{"request_id", "r-1"},
                     {"bytes", int64_t{1} << 40},
                     {"ready", false},
                     {"seconds", 0.25},
                     {"nan", std::numeric_limits<double>::quiet_NaN()}});
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const json object = json::parse(line);
  EXPECT_EQ(object["time"], "2023-11-14T22:13:20.123Z");
  EXPECT_EQ(object["level"], "warning");
  EXPECT_EQ(object["message"], "queue is full");
  EXPECT_EQ(object["request_id"], "r-1");
  EXPECT_EQ(object["bytes"], int64_t{1} << 40);
  EXPECT_EQ(object["ready"], false);
  EXPECT_EQ(object["seconds"], 0.25);
  EXPECT_TRUE(object["nan"].is_null());
}

TEST(Log, TextCannotBreakOutOfItsString) {
  const std::string evil = "a\"b\\c\nd\te\x01";
  const json object =
      json::parse(RenderLogLine({}, LogLevel::kInfo, evil, {{"value", evil}}));
  EXPECT_EQ(object["message"], evil);
  EXPECT_EQ(object["value"], evil);
}

TEST(Log, LinesBelowTheLevelAreDropped) {
  std::vector<std::string> lines;
  SetLogSink([&](const std::string& line) { lines.push_back(line); });
  SetLogLevel(LogLevel::kWarning);
  Log(LogLevel::kInfo, "no");
  Log(LogLevel::kError, "yes");
  SetLogLevel(LogLevel::kInfo);
  SetLogSink(nullptr);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(json::parse(lines[0])["message"], "yes");
}

TEST(Log, LevelsParseByName) {
  LogLevel level = LogLevel::kInfo;
  EXPECT_TRUE(ParseLogLevel("debug", &level));
  EXPECT_EQ(level, LogLevel::kDebug);
  EXPECT_FALSE(ParseLogLevel("loud", &level));
  EXPECT_EQ(level, LogLevel::kDebug);
}

}  // namespace
}  // namespace attendant::server
