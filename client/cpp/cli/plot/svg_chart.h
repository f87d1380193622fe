// Charts as SVG text: no outside asset, light and dark.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attendant::client::cli {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  // in the order to be joined
  bool dashed = false;
  int color = 0;  // 0..7, taken modulo 8
};

struct LineChart {
  std::string title;
  std::string x_label, y_label;
  bool log_x = false;  // points at 0 and below are left out then
  bool log_y = false;
  std::vector<Series> series;
};
// Lines with a mark and its value in words at each point. Points that are no
// finite numbers are left out; a chart without points says so.
std::string LineChartSvg(const LineChart& chart);

struct BarChart {
  std::string title;
  std::string unit;
  std::vector<std::string> parts;  // of a bar, left to right
  struct Bar {
    std::string name;
    std::vector<double> lengths;  // one a part, >= 0
  };
  std::vector<Bar> bars;
};
std::string BarChartSvg(const BarChart& chart);

// &, <, >, " and ' as entities.
std::string EscapeXml(std::string_view text);
// "0.25", "1.2k", "3.4M": at most three digits that matter.
std::string ShortNumber(double value);
// Round numbers (1, 2 or 5 times a power of ten; a log axis: powers of ten and,
// where those are few, their 2 and 5 folds) from below `low` to above `high`.
std::vector<double> AxisTicks(double low, double high, bool log);

}  // namespace attendant::client::cli
