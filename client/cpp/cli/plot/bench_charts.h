// Rows of a benchmark -> charts, and a page with all of them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace attendant::client::cli {

struct ChartKind {
  const char* name;
  const char* what;
};
// "latency", "throughput", "percentiles", "stages".
const std::vector<ChartKind>& ChartKinds();

// The rows of bench JSON: an object with "rows", or a list of rows (what
// tests/benchmark/results holds). INVALID_ARGUMENT if it is neither.
absl::StatusOr<nlohmann::ordered_json> RowsOf(
    const nlohmann::ordered_json& report);

// One SVG. Rows without what a chart shows are left out of it.
// INVALID_ARGUMENT for another kind.
absl::StatusOr<std::string> BenchChart(const std::string& kind,
                                       const nlohmann::ordered_json& rows);

// A page of its own: table and every chart, no outside asset, no script.
std::string BenchPage(const nlohmann::ordered_json& report);

}  // namespace attendant::client::cli
