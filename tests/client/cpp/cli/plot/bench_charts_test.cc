#include "client/cpp/cli/plot/bench_charts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "client/cpp/cli/commands.h"

namespace attendant::client::cli {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::Not;

ordered_json Report() {
  return ordered_json::parse(R"({"date": "today", "command": "a <b>",
    "server": {"version": "1"}, "rows": [
    {"door": "unary", "shape": "s8h1d8", "layout": "BSHD", "connections": 2,
     "concurrency": 1, "p50_ms": 1.5, "p99_ms": 3, "mean_ms": 2, "gbps": 0.5,
     "answered": 4, "failed": 0, "stages": {"kernel": {"mean_ms": 0.25}},
     "histogram_ms": [[1, 2], [2, 1], [4, 1]]},
    {"door": "unary", "shape": "s8h1d8", "layout": "BSHD", "connections": 2,
     "concurrency": 4, "p50_ms": 2.5, "p99_ms": 9, "gbps": 1.5},
    {"section": "large", "door": "flight", "layout": "BSHD", "seqlen": 8,
     "num_heads": 1, "head_dim": 8, "connections": 1, "p50_ms": 7,
     "p99_ms": 8, "gbps": 2}]})");
}

TEST(BenchCharts, DrawEveryKind) {
  const ordered_json rows = *RowsOf(Report());
  for (const ChartKind& kind : ChartKinds()) {
    const auto svg = BenchChart(kind.name, rows);
    ASSERT_TRUE(svg.ok()) << kind.name;
    EXPECT_THAT(*svg, HasSubstr("unary s8h1d8")) << kind.name;
    EXPECT_THAT(*svg, HasSubstr("</svg>"));
  }
  EXPECT_THAT(*BenchChart("latency", rows), HasSubstr("p99_ms: 4, 9"));
  EXPECT_THAT(*BenchChart("latency", rows), HasSubstr("large: flight s8h1d8"));
  EXPECT_THAT(*BenchChart("throughput", rows), HasSubstr("gbps: 4, 1.5"));
  // Three of four calls took at most 2 ms: one in four took longer.
  EXPECT_THAT(*BenchChart("percentiles", rows), HasSubstr("1 caller: 4, 2<"));
  EXPECT_THAT(*BenchChart("stages", rows), HasSubstr("kernel: 0.25 ms"));
  EXPECT_THAT(*BenchChart("stages", rows),
              HasSubstr("wire and client: 1.75 ms"));
  EXPECT_FALSE(BenchChart("pie", rows).ok());
}

TEST(BenchCharts, ReadListsAndReports) {
  EXPECT_EQ(RowsOf(Report())->size(), 3);
  EXPECT_EQ(RowsOf(Report()["rows"])->size(), 3);
  for (const char* text : {"{}", "3", "[1]", "[{}]", R"({"rows": 5})"}) {
    EXPECT_FALSE(RowsOf(ordered_json::parse(text)).ok()) << text;
  }
}

TEST(BenchCharts, PageHasAllAndNothingFromOutside) {
  const std::string page = BenchPage(Report());
  EXPECT_THAT(page, HasSubstr("<table>"));
  EXPECT_THAT(page, HasSubstr("prefers-color-scheme:dark"));
  EXPECT_THAT(page, HasSubstr("a &lt;b&gt;"));
  EXPECT_THAT(page, HasSubstr("Where the time goes"));
  for (const char* outside : {"src=", "href=", "@import", "url(", "<script"}) {
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  }
}

TEST(PlotCommand, DrawsAFileAndNamesABadOne) {
  const auto folder = std::filesystem::path(testing::TempDir());
  const std::string rows = folder / "rows.json", svg = folder / "out.svg";
  std::ofstream(rows) << Report().dump();
  EXPECT_EQ(RunCommandLine({"plot", rows, "--out=" + svg, "--door=unary"}),
            kOk);
  std::stringstream text;
  text << std::ifstream(svg).rdbuf();
  EXPECT_THAT(text.str(), HasSubstr("unary"));
  EXPECT_THAT(text.str(), Not(HasSubstr("flight")));
  EXPECT_EQ(RunCommandLine({"plot"}), kUsage);
  EXPECT_EQ(RunCommandLine({"plot", "/nowhere.json"}), kUsage);
  EXPECT_EQ(RunCommandLine({"plot", rows, "--what=pie"}), kUsage);
  std::ofstream(rows) << "no json";
  EXPECT_EQ(RunCommandLine({"plot", rows}), kUsage);
}

}  // namespace
}  // namespace attendant::client::cli
