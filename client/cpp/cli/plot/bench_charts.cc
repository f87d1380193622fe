#include "client/cpp/cli/plot/bench_charts.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "client/cpp/cli/plot/svg_chart.h"
#include "client/cpp/client_error.h"

namespace attendant::client::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kStages[] = {"receive", "queue",    "upload",
                                   "kernel",  "download", "send"};

double Number(const ordered_json& row, const char* key, double otherwise = 0) {
  const auto found = row.find(key);
  return found != row.end() && found->is_number() ? found->get<double>()
                                                  : otherwise;
}

std::string Word(const ordered_json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_string() ? found->get<std::string>()
                                                  : "";
}

std::string ShapeOf(const ordered_json& row) {
  const std::string shape = Word(row, "shape");
  if (!shape.empty() || !row.contains("seqlen")) return shape;
  return absl::StrCat("s", Number(row, "seqlen"), "h", Number(row, "num_heads"),
                      "d", Number(row, "head_dim"));
}

// What a line is, without its place on the load axis.
std::string SeriesName(const ordered_json& row) {
  std::string name = absl::StrCat(Word(row, "door"), " ", ShapeOf(row), " ",
                                  Word(row, "layout"));
  const double connections = Number(row, "connections", 1);
  if (connections != 1) absl::StrAppend(&name, ", ", connections, " conns");
  const std::string section = Word(row, "section");
  return section.empty() ? name : section + ": " + name;
}

std::string RowName(const ordered_json& row) {
  if (row.contains("rate")) {
    return absl::StrCat(SeriesName(row), ", ", Number(row, "rate"), "/s");
  }
  const double callers = Number(row, "concurrency", 1);
  return absl::StrCat(SeriesName(row), ", ", callers,
                      callers == 1 ? " caller" : " callers");
}

bool IsOpen(const ordered_json& row) { return row.contains("rate"); }

// Lines over the load: one a series name, `keys` solid and then dashed.
LineChart LoadChart(const ordered_json& rows,
                    const std::vector<const char*>& keys) {
  LineChart chart;
  const bool open = std::any_of(rows.begin(), rows.end(), IsOpen);
  chart.x_label = open ? "calls a second asked for" : "callers";
  chart.log_x = true;
  std::map<std::string, size_t> first_series;
  for (const ordered_json& row : rows) {
    const std::string name = SeriesName(row);
    if (!row.contains(keys[0])) continue;
    if (!first_series.contains(name)) {
      const int color = static_cast<int>(first_series.size());
      first_series[name] = chart.series.size();
      for (size_t k = 0; k < keys.size(); ++k) {
        chart.series.push_back({name + " " + keys[k], {}, k > 0, color});
      }
    }
    const double x = open ? Number(row, "rate") : Number(row, "concurrency", 1);
    for (size_t k = 0; k < keys.size(); ++k) {
      chart.series[first_series[name] + k].points.emplace_back(
          x, Number(row, keys[k]));
    }
  }
  for (Series& series : chart.series) {
    std::sort(series.points.begin(), series.points.end());
  }
  return chart;
}

std::string LatencyChart(const ordered_json& rows) {
  LineChart chart = LoadChart(rows, {"p50_ms", "p99_ms"});
  chart.title = "Latency by load";
  chart.y_label = "ms";
  chart.log_y = true;
  return LineChartSvg(chart);
}

std::string ThroughputChart(const ordered_json& rows) {
  LineChart chart = LoadChart(rows, {"gbps"});
  chart.title = "Bytes in plus out by load";
  chart.y_label = "GB/s";
  return LineChartSvg(chart);
}

// x = 1 / (share of calls that took longer): 10 is p90, 100 is p99.
std::string PercentileChart(const ordered_json& rows) {
  LineChart chart;
  chart.title = "Latency by percentile (10 is p90, 100 is p99)";
  chart.x_label = "one call in so many took longer";
  chart.y_label = "ms";
  chart.log_x = chart.log_y = true;
  for (const ordered_json& row : rows) {
    const auto histogram = row.find("histogram_ms");
    if (histogram == row.end()) continue;
    double total = 0, seen = 0;
    for (const ordered_json& bucket : *histogram) {
      total += bucket[1].get<double>();
    }
    Series& series = chart.series.emplace_back();
    series.name = RowName(row);
    series.color = static_cast<int>(chart.series.size()) - 1;
    for (const ordered_json& bucket : *histogram) {
      seen += bucket[1].get<double>();
      // The slowest call has none behind it: drawn at one in all.
      series.points.emplace_back(total / std::max(1.0, total - seen),
                                 bucket[0].get<double>());
    }
  }
  return LineChartSvg(chart);
}

// The server's exposed stages, and what is left of the client's time.
std::string StageChart(const ordered_json& rows) {
  BarChart chart;
  chart.title = "Where the time goes";
  chart.unit = "ms";
  chart.parts.assign(std::begin(kStages), std::end(kStages));
  chart.parts.push_back("wire and client");
  for (const ordered_json& row : rows) {
    const auto stages = row.find("stages");
    if (stages == row.end()) continue;
    BarChart::Bar& bar = chart.bars.emplace_back();
    bar.name = RowName(row);
    const char* key = row.contains("mean_ms") ? "mean_ms" : "p50_ms";
    double rest = Number(row, key);
    for (const char* stage : kStages) {
      const double length =
          stages->contains(stage) ? Number((*stages)[stage], key) : 0;
      bar.lengths.push_back(length);
      rest -= length;
    }
    bar.lengths.push_back(std::max(0.0, rest));
  }
  return BarChartSvg(chart);
}

std::string PageTable(const ordered_json& rows) {
  constexpr std::pair<const char*, const char*> kColumns[] = {
      {"p50_ms", "p50 ms"},          {"p90_ms", "p90 ms"},
      {"p99_ms", "p99 ms"},          {"max_ms", "max ms"},
      {"requests_per_s", "calls/s"}, {"gbps", "GB/s"},
      {"answered", "answered"},      {"failed", "failed"}};
  std::string html = "<table><thead><tr><th scope=\"col\">case</th>";
  for (const auto& [key, title] : kColumns) {
    absl::StrAppend(&html, "<th scope=\"col\">", title, "</th>");
  }
  html += "</tr></thead><tbody>\n";
  for (const ordered_json& row : rows) {
    absl::StrAppend(&html, "<tr><th scope=\"row\">", EscapeXml(RowName(row)),
                    "</th>");
    for (const auto& [key, title] : kColumns) {
      absl::StrAppend(&html, "<td>",
                      row.contains(key) ? ShortNumber(Number(row, key)) : "",
                      "</td>");
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table>\n";
}

constexpr char kPageHead[] = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>attendant bench</title>
<style>
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;
padding:0 1rem;color:#1b1f24;background:#fff}
table{border-collapse:collapse;font-size:13px;display:block;overflow-x:auto}
th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #d5dae1}
th[scope=row],th:first-child{text-align:left;font-weight:500}
dt{font-weight:600}dd{margin:0 0 .4rem;overflow-wrap:anywhere}
figure{margin:2rem 0}
@media(prefers-color-scheme:dark){body{color:#e6e9ee;background:#15181d}
th,td{border-color:#3a414b}}
</style></head><body>
<h1>attendant bench</h1>
)";

}  // namespace

const std::vector<ChartKind>& ChartKinds() {
  static const std::vector<ChartKind> kinds = {
      {"latency", "p50 and p99 over the load"},
      {"throughput", "GB/s over the load"},
      {"percentiles", "latency of every share of the calls"},
      {"stages", "the server's stages and the rest of a call"}};
  return kinds;
}

absl::StatusOr<ordered_json> RowsOf(const ordered_json& report) {
  const ordered_json* rows = &report;
  if (report.is_object() && report.contains("rows")) rows = &report["rows"];
  bool good = rows->is_array();
  for (const ordered_json& row : *rows) {
    good = good && row.is_object() && row.contains("door");
  }
  if (good) return *rows;
  return InvalidField("JSON", "no rows of a benchmark",
                      "what attendant bench --json writes");
}

absl::StatusOr<std::string> BenchChart(const std::string& kind,
                                       const ordered_json& rows) {
  if (kind == "latency") return LatencyChart(rows);
  if (kind == "throughput") return ThroughputChart(rows);
  if (kind == "percentiles") return PercentileChart(rows);
  if (kind == "stages") return StageChart(rows);
  return InvalidField("--what", kind,
                      "latency, throughput, percentiles or stages");
}

std::string BenchPage(const ordered_json& report) {
  std::string html = kPageHead;
  html += "<dl>";
  for (const char* key : {"date", "command"}) {
    absl::StrAppend(&html, "<dt>", key, "</dt><dd>",
                    EscapeXml(Word(report, key)), "</dd>");
  }
  if (report.contains("server")) {
    absl::StrAppend(&html, "<dt>server</dt><dd>",
                    EscapeXml(report["server"].dump()), "</dd>");
  }
  const ordered_json& rows = report["rows"];
  absl::StrAppend(&html, "</dl>\n", PageTable(rows));
  for (const ChartKind& kind : ChartKinds()) {
    const absl::StatusOr<std::string> svg = BenchChart(kind.name, rows);
    if (svg.ok()) absl::StrAppend(&html, "<figure>", *svg, "</figure>\n");
  }
  return html + "</body></html>\n";
}

}  // namespace attendant::client::cli
