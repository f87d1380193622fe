#include "server/monitoring/status_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "server/monitoring/metrics.h"
#include "server/monitoring/status_assets.h"

namespace attendant::server {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

StatusReport Report() {
  Metrics metrics({"1.2.3", "some compiler"});
  metrics.Started(Method::kAttend);
  AttendOutcome outcome;
  outcome.total_ns = 4'000'000;
  outcome.exposed_ns = {1'000'000, 0, 0, 3'000'000, 0, 0};
  metrics.Finished(0, outcome);
  metrics.Started(Method::kAttend);
  EngineSnapshot engine;
  engine.queued_bytes = 1'234'567'890'123;
  engine.launched_flops = 1e17;
  StatusReport report;
  report.families = metrics.Collect(engine, report.device, true);
  return report;
}

TEST(StatusReport, HasEverySampleOfMetrics) {
  const StatusReport report = Report();
  std::map<std::string, double> scraped;
  std::istringstream text(RenderPrometheusText(report.families));
  for (std::string line; std::getline(text, line);) {
    if (line[0] == '#') continue;
    const size_t blank = line.rfind(' ');
    scraped[line.substr(0, blank)] = std::stod(line.substr(blank));
  }
  const json status = json::parse(RenderStatusJson(report));
  size_t found = 0;
  const auto expect = [&](std::string name, const json& labels, double value) {
    std::string inside;
    for (const auto& family : report.families) {
      if (name.rfind(family.name, 0) != 0) continue;
      for (const auto& label : family.metric[0].label) {
        inside += (inside.empty() ? "" : ",") + label.name + "=\"" +
                  labels.at(label.name).get<std::string>() + "\"";
      }
      break;
    }
    if (!inside.empty()) name += "{" + inside + "}";
    ASSERT_TRUE(scraped.count(name)) << name;
    EXPECT_DOUBLE_EQ(scraped[name], value) << name;
    ++found;
  };
  for (const auto& [name, samples] : status["metrics"].items()) {
    for (const json& sample : samples) {
      if (sample.contains("value")) {
        expect(name, sample["labels"], sample["value"]);
        continue;
      }
      expect(name + "_sum", sample["labels"], sample["sum"]);
      expect(name + "_count", sample["labels"], sample["count"]);
      EXPECT_EQ(sample["buckets"].back()[0], "+Inf");
      EXPECT_EQ(sample["buckets"].back()[1], sample["count"]);
      found += sample["buckets"].size();
    }
  }
  EXPECT_EQ(found, scraped.size());
}

TEST(StatusReport, ErrorsCarryTheirRequestId) {
  StatusReport report = Report();
  RecentError error;
  error.time = std::chrono::system_clock::time_point(
      std::chrono::milliseconds(1'767'323'045'678));
  error.request_id = "<b>r-1</b>";
  error.code = 3;
  error.stage = Stage::kReceive;
  error.message = "not UTF-8: \xff";
  report.errors = {error};
  const json status = json::parse(RenderStatusJson(report));
  const json& shown = status["errors"][0];
  EXPECT_EQ(shown["time"], "2026-01-02T03:04:05.678Z");
  EXPECT_EQ(shown["request_id"], "<b>r-1</b>");
  EXPECT_EQ(shown["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(shown["stage"], "receive");
  EXPECT_EQ(shown["message"], "not UTF-8: \xef\xbf\xbd");
}

TEST(StatusReport, WhatJsonCannotWriteIsNull) {
  StatusReport report = Report();
  report.families[0].metric[0].gauge.value =
      std::numeric_limits<double>::quiet_NaN();
  const json status = json::parse(RenderStatusJson(report));
  EXPECT_TRUE(status["metrics"]["attendant_build_info"][0]["value"].is_null());
}

TEST(StatusReport, HealthDeviceAndFlagsAreThere) {
  StatusReport report = Report();
  report.why_not_ready = "draining";
  report.device.is_cuda = true;
  report.device.uuid = "GPU-1";
  report.flags = {{"http", "a:1", "b:2"}};
  const json status = json::parse(RenderStatusJson(report));
  EXPECT_EQ(status["why_not_ready"], "draining");
  EXPECT_EQ(status["why_not_live"], "");
  EXPECT_EQ(status["device"]["uuid"], "GPU-1");
  EXPECT_EQ(status["flags"][0]["name"], "http");
  EXPECT_EQ(status["flags"][0]["value"], "a:1");
  EXPECT_EQ(status["flags"][0]["initial"], "b:2");
}

TEST(StatusAssets, NoneAsksForAnythingFromElsewhere) {
  EXPECT_EQ(StatusAssets().size(), 5u);
  for (const auto& [name, text] : StatusAssets()) {
    EXPECT_THAT(std::string(text), Not(HasSubstr("https:"))) << name;
    EXPECT_THAT(std::string(text), Not(HasSubstr("@import"))) << name;
    EXPECT_GT(text.size(), 100u) << name;
  }
}

}  // namespace
}  // namespace attendant::server
