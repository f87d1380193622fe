#include "client/cpp/cli/plot/svg_chart.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace attendant::client::cli {
namespace {

constexpr double kWidth = 720, kHeight = 380;
constexpr double kLeft = 70, kRight = 20, kTop = 40, kBottom = 50;
constexpr int kLegendRow = 18;
constexpr int kColors = 8;

// One rule for page and stand-alone file: colours follow the reader's choice.
constexpr char kStyle[] =
    "<style>.c{--ink:#1b1f24;--faint:#d5dae1;--paper:#fff;--c0:#0b62d6;"
    "--c1:#c2410c;--c2:#15803d;--c3:#7e22ce;--c4:#0e7490;--c5:#be185d;"
    "--c6:#854d0e;--c7:#475569}"
    "@media(prefers-color-scheme:dark){.c{--ink:#e6e9ee;--faint:#3a414b;"
    "--paper:#15181d;--c0:#6cb0ff;--c1:#ff9d6b;--c2:#6fd88f;--c3:#cf9bff;"
    "--c4:#63d3e6;--c5:#ff8cc0;--c6:#e3b95f;--c7:#a7b3c4}}"
    ".c text{font:12px system-ui,sans-serif;fill:var(--ink)}"
    ".c .t{font-size:15px;font-weight:600}"
    ".c .g{stroke:var(--faint);stroke-width:1}"
    ".c .l{fill:none;stroke-width:2}</style>";

std::string Head(const std::string& title, double height) {
  return absl::StrFormat(
      "<svg class=\"c\" xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" "
      "aria-label=\"%s\" viewBox=\"0 0 %g %g\" width=\"100%%\">%s"
      "<rect width=\"%g\" height=\"%g\" style=\"fill:var(--paper)\"/>"
      "<text class=\"t\" x=\"%g\" y=\"22\">%s</text>\n",
      EscapeXml(title), kWidth, height, kStyle, kWidth, height, kLeft,
      EscapeXml(title));
}

std::string Color(int color) {
  return absl::StrCat("var(--c", color % kColors, ")");
}

std::string Text(double x, double y, const char* anchor,
                 const std::string& text) {
  return absl::StrFormat(
      "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>", x, y, anchor,
      EscapeXml(text));
}

// One axis: numbers to places between `begin` and `end`.
class Axis {
 public:
  Axis(double low, double high, bool log, double begin, double end)
      : log_(log),
        ticks_(AxisTicks(low, high, log)),
        begin_(begin),
        end_(end) {}

  const std::vector<double>& ticks() const { return ticks_; }
  double Place(double value) const {
    const double low = Scaled(ticks_.front()), high = Scaled(ticks_.back());
    return begin_ + (Scaled(value) - low) / (high - low) * (end_ - begin_);
  }

 private:
  double Scaled(double value) const { return log_ ? std::log10(value) : value; }
  bool log_;
  std::vector<double> ticks_;
  double begin_, end_;
};

bool Shown(const LineChart& chart, const std::pair<double, double>& point) {
  return std::isfinite(point.first) && std::isfinite(point.second) &&
         (!chart.log_x || point.first > 0) &&
         (!chart.log_y || point.second > 0);
}

struct Range {
  double low = HUGE_VAL, high = -HUGE_VAL;
  void Add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

std::string Grid(const LineChart& chart, const Axis& x, const Axis& y) {
  std::string svg;
  for (const double tick : x.ticks()) {
    const double at = x.Place(tick);
    absl::StrAppendFormat(
        &svg, "<line class=\"g\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%g\" y2=\"%g\"/>",
        at, at, kTop, kHeight - kBottom);
    svg += Text(at, kHeight - kBottom + 16, "middle", ShortNumber(tick));
  }
  for (const double tick : y.ticks()) {
    const double at = y.Place(tick);
    absl::StrAppendFormat(
        &svg, "<line class=\"g\" x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\"/>",
        kLeft, kWidth - kRight, at, at);
    svg += Text(kLeft - 6, at + 4, "end", ShortNumber(tick));
  }
  svg += Text((kLeft + kWidth - kRight) / 2, kHeight - 14, "middle",
              chart.x_label);
  absl::StrAppendFormat(&svg,
                        "<text transform=\"translate(16 %g) rotate(-90)\" "
                        "text-anchor=\"middle\">%s</text>\n",
                        (kTop + kHeight - kBottom) / 2,
                        EscapeXml(chart.y_label));
  return svg;
}

std::string Line(const LineChart& chart, const Series& series, const Axis& x,
                 const Axis& y) {
  const std::string color = Color(series.color);
  std::string path, marks;
  for (const auto& point : series.points) {
    if (!Shown(chart, point)) continue;
    const double px = x.Place(point.first), py = y.Place(point.second);
    absl::StrAppendFormat(&path, "%s%.1f %.1f", path.empty() ? "M" : "L", px,
                          py);
    absl::StrAppendFormat(
        &marks,
        "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" style=\"fill:%s\"><title>%s: "
        "%s, %s</title></circle>",
        px, py, color, EscapeXml(series.name), ShortNumber(point.first),
        ShortNumber(point.second));
  }
  return absl::StrFormat(
      "<path class=\"l\" d=\"%s\" style=\"stroke:%s%s\"/>%s\n", path, color,
      series.dashed ? ";stroke-dasharray:5 4" : "", marks);
}

std::string Legend(const std::vector<std::pair<std::string, int>>& names,
                   double top) {
  std::string svg;
  for (size_t i = 0; i < names.size(); ++i) {
    const double y = top + static_cast<double>(i) * kLegendRow;
    absl::StrAppendFormat(&svg,
                          "<rect x=\"%g\" y=\"%.1f\" width=\"12\" "
                          "height=\"12\" style=\"fill:%s\"/>",
                          kLeft, y - 10, Color(names[i].second));
    svg += Text(kLeft + 18, y, "start", names[i].first);
  }
  return svg;
}

}  // namespace

std::string EscapeXml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string ShortNumber(double value) {
  if (std::abs(value) >= 1e9) return absl::StrFormat("%.3gG", value * 1e-9);
  if (std::abs(value) >= 1e6) return absl::StrFormat("%.3gM", value * 1e-6);
  if (std::abs(value) >= 1e4) return absl::StrFormat("%.3gk", value * 1e-3);
  if (std::abs(value) >= 1000) return absl::StrFormat("%.0f", value);
  return absl::StrFormat("%.3g", value);
}

std::vector<double> AxisTicks(double low, double high, bool log) {
  std::vector<double> ticks;
  if (log) {
    const double first = std::floor(std::log10(low));
    double last = std::ceil(std::log10(high));
    if (last == first) ++last;
    const bool few = last - first <= 2;
    for (double power = first; power <= last; ++power) {
      ticks.push_back(std::pow(10, power));
      if (!few || power == last) continue;
      ticks.push_back(2 * std::pow(10, power));
      ticks.push_back(5 * std::pow(10, power));
    }
    return ticks;
  }
  low = std::min(low, 0.0);
  if (!(high > low)) high = low + 1;
  const double rough = (high - low) / 5;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) {
      step = factor * power;
      break;
    }
  }
  double tick = std::floor(low / step) * step;
  for (; tick < high + step * 0.999; tick += step) ticks.push_back(tick);
  return ticks;
}

std::string LineChartSvg(const LineChart& chart) {
  Range xs, ys;
  for (const Series& series : chart.series) {
    for (const auto& point : series.points) {
      if (!Shown(chart, point)) continue;
      xs.Add(point.first);
      ys.Add(point.second);
    }
  }
  const double height =
      kHeight + kLegendRow * static_cast<double>(chart.series.size());
  std::string svg = Head(chart.title, height);
  if (xs.low > xs.high) {
    return svg + Text(kLeft, kTop + 20, "start", "no data") + "</svg>\n";
  }
  const Axis x(xs.low, xs.high, chart.log_x, kLeft, kWidth - kRight);
  const Axis y(ys.low, ys.high, chart.log_y, kHeight - kBottom, kTop);
  svg += Grid(chart, x, y);
  std::vector<std::pair<std::string, int>> names;
  for (const Series& series : chart.series) {
    svg += Line(chart, series, x, y);
    names.emplace_back(series.name + (series.dashed ? " (dashed)" : ""),
                       series.color);
  }
  return svg + Legend(names, kHeight + 8) + "</svg>\n";
}

std::string BarChartSvg(const BarChart& chart) {
  constexpr double kBarRow = 38, kThickness = 16;
  double longest = 0;
  for (const BarChart::Bar& bar : chart.bars) {
    double sum = 0;
    for (const double length : bar.lengths) sum += length;
    longest = std::max(longest, sum);
  }
  const double bars_end =
      kTop + kBarRow * static_cast<double>(chart.bars.size());
  const double height =
      bars_end + 30 + kLegendRow * static_cast<double>(chart.parts.size());
  std::string svg = Head(chart.title, height);
  const double scale =
      longest > 0 ? (kWidth - kLeft - kRight - 60) / longest : 0;
  double top = kTop;
  for (const BarChart::Bar& bar : chart.bars) {
    svg += Text(kLeft, top + 12, "start", bar.name);
    double at = kLeft, sum = 0;
    for (size_t p = 0; p < bar.lengths.size(); ++p) {
      absl::StrAppendFormat(
          &svg,
          "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.2f\" height=\"%g\" "
          "style=\"fill:%s\"><title>%s: %s %s</title></rect>",
          at, top + 16, bar.lengths[p] * scale, kThickness,
          Color(static_cast<int>(p)), EscapeXml(chart.parts[p]),
          ShortNumber(bar.lengths[p]), EscapeXml(chart.unit));
      at += bar.lengths[p] * scale;
      sum += bar.lengths[p];
    }
    svg += Text(at + 6, top + 29, "start",
                absl::StrCat(ShortNumber(sum), " ", chart.unit));
    svg += "\n";
    top += kBarRow;
  }
  std::vector<std::pair<std::string, int>> names;
  for (size_t p = 0; p < chart.parts.size(); ++p) {
    names.emplace_back(chart.parts[p], static_cast<int>(p));
  }
  return svg + Legend(names, bars_end + 24) + "</svg>\n";
}

}  // namespace attendant::client::cli
