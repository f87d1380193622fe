#include "client/cpp/cli/plot/plot_command.h"

#include <fstream>
#include <sstream>

#include "client/cpp/cli/plot/bench_charts.h"
#include "client/cpp/cli/text_file.h"
#include "client/cpp/client_error.h"

namespace attendant::client::cli {
namespace {

using nlohmann::ordered_json;

constexpr FlagSpec kFlags[] = {
    {"what", "latency|throughput|percentiles|stages", "the chart [latency]"},
    {"door", "NAME", "only rows of this door"},
    {"section", "NAME", "only rows of this section"},
    {"out", "FILE", "write there [stdout]"},
    {"json", "", "print the rows that the chart shows instead"},
    {"help", "", "show this"},
};

absl::StatusOr<ordered_json> ReadRows(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return InvalidField("FILE", path, "a file that can be read");
  const ordered_json report = ordered_json::parse(text.str(), nullptr, false);
  if (report.is_discarded()) return InvalidField("FILE", path, "a JSON file");
  return RowsOf(report);
}

bool Matches(const Flags& flags, const ordered_json& row) {
  for (const char* key : {"door", "section"}) {
    if (flags.Has(key) && row.value(key, "") != flags.String(key)) return false;
  }
  return true;
}

int RunPlot(const Flags& flags) {
  ordered_json rows = ordered_json::array();
  if (flags.positional().empty()) {
    return Fail(InvalidField("FILE", "missing", "bench JSON"), kUsage);
  }
  for (const std::string& path : flags.positional()) {
    const absl::StatusOr<ordered_json> read = ReadRows(path);
    if (!read.ok()) return Fail(read.status(), kUsage);
    for (const ordered_json& row : *read) {
      if (Matches(flags, row)) rows.push_back(row);
    }
  }
  const absl::StatusOr<std::string> svg =
      BenchChart(flags.String("what", "latency"), rows);
  if (!svg.ok()) return Fail(svg.status(), kUsage);
  const absl::Status written =
      WriteTextFile("--out", flags.String("out", "-"),
                    flags.Switch("json") ? rows.dump(1) + "\n" : *svg);
  return written.ok() ? kOk : Fail(written, kUsage);
}

}  // namespace

Command PlotCommand() {
  return {.name = "plot",
          .arguments = "FILE...",
          .summary = "Draws the JSON of attendant bench as SVG.",
          .details =
              "Rows of several files share the chart. The SVG is light "
              "or dark as the reader is.\n",
          .examples =
              "attendant bench --concurrency=1,2,4,8 --json=rows.json\n"
              "attendant plot rows.json --out=latency.svg\n"
              "attendant plot --what=stages --door=unary rows.json "
              "--out=stages.svg\n",
          .flags = {std::begin(kFlags), std::end(kFlags)},
          .run = RunPlot};
}

}  // namespace attendant::client::cli
