// Results of `attendant bench` as JSON and as a table for a terminal.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "client/cpp/cli/bench/bench_case.h"
#include "client/cpp/cli/bench/load_runner.h"
#include "client/cpp/server_info.h"

namespace attendant::client::cli {

// One object per case. Times are in ms. GB/s: tensor bytes in plus out of
// answered calls over wall time, 1e9 a second. The keys stand in
// client/cpp/cli/bench/README.md.
nlohmann::ordered_json RowJson(const BenchCase& one, const LoadResult& result);

// The whole file: {"tool", "date", "command", "server", "rows"}.
nlohmann::ordered_json ReportJson(const ServerInfo& server,
                                  const std::string& command_line,
                                  nlohmann::ordered_json rows);

std::string TableHead();
std::string TableRow(const nlohmann::ordered_json& row);

}  // namespace attendant::client::cli
