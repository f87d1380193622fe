#include "client/cpp/cli/bench/bench_report.h"

#include <chrono>
#include <ctime>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"

namespace attendant::client::cli {
namespace {

using nlohmann::ordered_json;
using std::chrono::nanoseconds;

double Milliseconds(nanoseconds time) {
  return static_cast<double>(time.count()) * 1e-6;
}

constexpr std::pair<const char*, double> kQuantiles[] = {
    {"p50_ms", 0.5},  {"p90_ms", 0.9},     {"p95_ms", 0.95},
    {"p99_ms", 0.99}, {"p99_9_ms", 0.999}, {"max_ms", 1}};

ordered_json QuantilesJson(const LatencyHistogram& histogram) {
  ordered_json json;
  for (const auto& [name, share] : kQuantiles) {
    json[name] = Milliseconds(histogram.Quantile(share));
  }
  json["mean_ms"] = Milliseconds(histogram.mean());
  json["min_ms"] = Milliseconds(histogram.min());
  return json;
}

ordered_json HistogramJson(const LatencyHistogram& histogram) {
  ordered_json buckets = ordered_json::array();
  for (const auto& [edge, count] : histogram.Buckets()) {
    buckets.push_back({Milliseconds(edge), count});
  }
  return buckets;
}

ordered_json StagesJson(const LoadResult& result) {
  ordered_json stages;
  const double wall = static_cast<double>(result.wall.count()) * 1e-9;
  for (int s = 0; s < kNumStages; ++s) {
    const LatencyHistogram& exposed = result.exposed[s];
    stages[kStageNames[s]] = {
        {"p50_ms", Milliseconds(exposed.Quantile(0.5))},
        {"p99_ms", Milliseconds(exposed.Quantile(0.99))},
        {"mean_ms", Milliseconds(exposed.mean())},
        {"busy_share", wall > 0 ? result.busy_seconds[s] / wall : 0}};
  }
  return stages;
}

void AddShape(const BenchCase& one, ordered_json* row) {
  const BenchShape& shape = one.shapes[0];
  (*row)["shape"] = ShapesText(one);
  (*row)["layout"] = Name(one.options.layout);
  (*row)["dtype"] = Name(one.options.dtype);
  (*row)["causal"] = one.options.causal;
  if (one.shapes.size() > 1) return;
  (*row)["batch"] = shape.batch;
  (*row)["seqlen"] = shape.seqlen_q;
  (*row)["seqlen_k"] = shape.seqlen_k;
  (*row)["num_heads"] = shape.num_q_heads;
  (*row)["num_kv_heads"] = shape.num_kv_heads;
  (*row)["head_dim"] = shape.head_dim;
  (*row)["head_dim_v"] = shape.head_dim_v;
}

ordered_json ErrorsJson(const LoadResult& result) {
  ordered_json errors = ordered_json::object();
  for (const auto& [code, count] : result.errors) {
    errors[absl::StatusCodeToString(code)] = count;
  }
  return errors;
}

std::string Now() {
  const std::time_t now =
      std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

}  // namespace

ordered_json RowJson(const BenchCase& one, const LoadResult& result) {
  const double wall = static_cast<double>(result.wall.count()) * 1e-9;
  const auto rate_of = [wall](double amount) {
    return wall > 0 ? amount / wall : 0;
  };
  ordered_json row;
  row["door"] = one.door;
  AddShape(one, &row);
  row["call"] = Name(one.call);
  row["connections"] = one.connections;
  row["loop"] = one.plan.rate > 0 ? "open" : "closed";
  row["concurrency"] = one.plan.callers;
  if (one.plan.rate > 0) row["rate"] = one.plan.rate;
  row["answered"] = result.answered;
  row["failed"] = result.failed();
  row["errors"] = ErrorsJson(result);
  row["deadline_exceeded"] = row["errors"].value(
      absl::StatusCodeToString(absl::StatusCode::kDeadlineExceeded),
      int64_t{0});
  row["retries"] = result.retries;
  row["wall_s"] = wall;
  row["requests_per_s"] = rate_of(static_cast<double>(result.answered));
  row["bytes_in"] = result.bytes_in;
  row["bytes_out"] = result.bytes_out;
  row["gbps"] =
      rate_of(static_cast<double>(result.bytes_in + result.bytes_out)) * 1e-9;
  row.update(QuantilesJson(result.latency));
  if (one.plan.rate > 0) row["service"] = QuantilesJson(result.service);
  row["mean_batch_requests"] =
      result.answered > 0 ? static_cast<double>(result.batch_requests) /
                                static_cast<double>(result.answered)
                          : 0;
  row["kernel"] = result.served_by.kernel;
  row["backend"] = Name(result.served_by.backend);
  row["stages"] = StagesJson(result);
  row["histogram_ms"] = HistogramJson(result.latency);
  return row;
}

ordered_json ReportJson(const ServerInfo& server,
                        const std::string& command_line, ordered_json rows) {
  ordered_json devices = ordered_json::array();
  for (const Device& device : server.devices) {
    devices.push_back({{"backend", Name(device.backend)},
                       {"name", device.name},
                       {"uuid", device.uuid}});
  }
  return {{"tool", "attendant bench"},
          {"date", Now()},
          {"command", command_line},
          {"server",
           {{"version", server.version},
            {"build", server.build},
            {"devices", devices}}},
          {"rows", std::move(rows)}};
}

std::string TableHead() {
  return absl::StrFormat("%-8s %-14s %5s %5s %7s %9s %9s %9s %9s %9s %7s %6s\n",
                         "door", "shape", "conns", "calls", "rate", "p50 ms",
                         "p90 ms", "p99 ms", "server ms", "calls/s", "GB/s",
                         "failed");
}

std::string TableRow(const ordered_json& row) {
  const std::string rate =
      row.contains("rate") ? absl::StrFormat("%.6g", row["rate"].get<double>())
                           : "closed";
  return absl::StrFormat(
      "%-8s %-14s %5d %5d %7s %9.3f %9.3f %9.3f %9.3f %9.1f %7.3f %6d\n",
      row["door"].get<std::string>(), row["shape"].get<std::string>(),
      row["connections"].get<int64_t>(), row["concurrency"].get<int64_t>(),
      rate, row["p50_ms"].get<double>(), row["p90_ms"].get<double>(),
      row["p99_ms"].get<double>(),
      row["stages"]["total"]["p50_ms"].get<double>(),
      row["requests_per_s"].get<double>(), row["gbps"].get<double>(),
      row["failed"].get<int64_t>());
}

}  // namespace attendant::client::cli
