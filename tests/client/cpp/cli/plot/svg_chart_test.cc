#include "client/cpp/cli/plot/svg_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace attendant::client::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(SvgChart, TicksAreRoundAndEncloseTheData) {
  EXPECT_THAT(AxisTicks(0, 9.3, false), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(AxisTicks(5, 5, false).front(), 0);
  EXPECT_GE(AxisTicks(5, 5, false).back(), 5);
  EXPECT_GE(AxisTicks(0, 0, false).size(), 2);
  EXPECT_THAT(AxisTicks(1, 1, true), ElementsAre(1, 2, 5, 10));
  for (const double high : {1.01, 9.99, 10.0, 1e5}) {
    const auto ticks = AxisTicks(0.03, high, true);
    EXPECT_LE(ticks.front(), 0.03);
    EXPECT_GE(ticks.back(), high * (1 - 1e-9));
    EXPECT_LE(ticks.size(), 12);
  }
}

TEST(SvgChart, LeavesOutWhatNoAxisHolds) {
  LineChart chart;
  chart.title = "t";
  chart.log_x = chart.log_y = true;
  chart.series = {{"a", {{0, 1}, {1, 0}, {NAN, 1}, {1, HUGE_VAL}, {2, 3}}}};
  const std::string svg = LineChartSvg(chart);
  EXPECT_THAT(svg, HasSubstr("a: 2, 3"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  chart.series[0].points.pop_back();
  EXPECT_THAT(LineChartSvg(chart), HasSubstr("no data"));
}

TEST(SvgChart, NamesCannotBreakOut) {
  LineChart chart;
  chart.title = "<script>";
  chart.series = {{"a\"><b>", {{1, 2}}}};
  EXPECT_THAT(LineChartSvg(chart), Not(HasSubstr("<script>")));
  EXPECT_THAT(LineChartSvg(chart), Not(HasSubstr("<b>")));
  BarChart bars{"'&", "ms", {"<p>"}, {{"<n>", {1}}}};
  EXPECT_THAT(BarChartSvg(bars), Not(HasSubstr("<n>")));
  EXPECT_THAT(BarChartSvg(bars), Not(HasSubstr("<p>")));
  EXPECT_EQ(EscapeXml("<&>\"'"), "&lt;&amp;&gt;&quot;&#39;");
}

TEST(SvgChart, BarsOfNothingAreDrawn) {
  EXPECT_THAT(BarChartSvg({"t", "ms", {"p"}, {{"n", {0}}}}), HasSubstr("0 ms"));
  EXPECT_THAT(BarChartSvg({"t", "ms", {}, {}}), HasSubstr("</svg>"));
}

TEST(SvgChart, NumbersAreShort) {
  EXPECT_EQ(ShortNumber(0.12345), "0.123");
  EXPECT_EQ(ShortNumber(1234), "1234");
  EXPECT_EQ(ShortNumber(12345), "12.3k");
  EXPECT_EQ(ShortNumber(2.5e9), "2.5G");
}

}  // namespace
}  // namespace attendant::client::cli
