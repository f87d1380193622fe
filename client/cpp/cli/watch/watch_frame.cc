#include "client/cpp/cli/watch/watch_frame.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace attendant::client::cli {
namespace {

using nlohmann::ordered_json;

constexpr char kStage[] = "attendant_stage_duration_seconds";
constexpr char kTotal[] = "attendant_request_duration_seconds";
constexpr char kFinished[] = "attendant_requests_finished_total";
constexpr const char* kStages[] = {"receive", "queue",    "upload",
                                   "kernel",  "download", "send"};
const MetricLabels kAttend = {{"method", "Attend"}};

// Rates of counters between two scrapes.
class Rates {
 public:
  Rates(const MetricSamples& before, const MetricSamples& after, double seconds)
      : before_(before), after_(after), seconds_(seconds) {}

  double Of(const std::string& name, const MetricLabels& labels = {}) const {
    if (!(seconds_ > 0)) return 0;
    return (after_.Sum(name, labels) - before_.Sum(name, labels)) / seconds_;
  }
  ordered_json QuantileMs(const std::string& name, const MetricLabels& labels,
                          double share) const {
    const double seconds = QuantileBetween(before_.Buckets(name, labels),
                                           after_.Buckets(name, labels), share);
    return std::isnan(seconds) ? ordered_json() : ordered_json(seconds * 1e3);
  }
  ordered_json Times(const std::string& name,
                     const MetricLabels& labels) const {
    return {{"p50_ms", QuantileMs(name, labels, 0.5)},
            {"p99_ms", QuantileMs(name, labels, 0.99)}};
  }

 private:
  const MetricSamples& before_;
  const MetricSamples& after_;
  const double seconds_;
};

ordered_json ErrorRates(const Rates& rates, const MetricSamples& after) {
  ordered_json errors = ordered_json::object();
  for (const std::string& code : after.LabelValues(kFinished, "code")) {
    const double rate =
        rates.Of(kFinished, {{"method", "Attend"}, {"code", code}});
    if (code != "OK" && rate > 0) errors[code] = rate;
  }
  return errors;
}

ordered_json Memory(const MetricSamples& after) {
  ordered_json memory = {
      {"resident_bytes", after.Sum("process_resident_memory_bytes")},
      {"host_pool_used_bytes", after.Sum("attendant_host_pool_used_bytes")},
      {"host_pool_capacity_bytes",
       after.Sum("attendant_host_pool_capacity_bytes")}};
  for (const char* kind : {"used", "reserved", "peak", "workspace"}) {
    memory[absl::StrCat("device_", kind, "_bytes")] =
        after.Sum("attendant_device_memory_bytes", {{"kind", kind}});
  }
  return memory;
}

std::string Ms(const ordered_json& value) {
  if (value.is_null()) return "-";
  return absl::StrFormat("%.3f", value.get<double>());
}

std::string Bytes(const ordered_json& value) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double bytes = value.get<double>();
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.4g %s", bytes, kUnits[unit]);
}

}  // namespace

ordered_json WatchFrame(const ServerInfo& info, const MetricSamples& before,
                        const MetricSamples& after, double seconds) {
  const Rates rates(before, after, seconds);
  ordered_json devices = ordered_json::array();
  for (const Device& device : info.devices) devices.push_back(device.name);
  ordered_json frame = {
      {"version", info.version},
      {"devices", devices},
      {"ready", after.Sum("attendant_ready") > 0},
      {"healthy", after.Sum("attendant_healthy") > 0},
      {"seconds", seconds},
      {"requests_per_s", rates.Of(kFinished, kAttend)},
      {"errors_per_s", ErrorRates(rates, after)},
      {"in_bytes_per_s", rates.Of("attendant_received_bytes_total")},
      {"out_bytes_per_s", rates.Of("attendant_sent_bytes_total")},
      {"launched_flops_per_s", rates.Of("attendant_launched_flops_total")},
      {"launches_per_s", rates.Of("attendant_launches_total")},
      {"in_flight", after.Sum("attendant_requests_in_flight", kAttend)},
      {"queued_requests", after.Sum("attendant_queued_requests")},
      {"running_requests", after.Sum("attendant_running_requests")},
      {"queued_bytes", after.Sum("attendant_queued_bytes")},
      {"duration", rates.Times(kTotal, {})},
      {"stages", ordered_json::object()},
      {"memory", Memory(after)}};
  for (const char* stage : kStages) {
    frame["stages"][stage] = rates.Times(kStage, {{"stage", stage}});
  }
  if (after.Has("attendant_gpu_utilization_ratio")) {
    frame["gpu"] = {
        {"utilization", after.Sum("attendant_gpu_utilization_ratio")},
        {"power_watts", after.Sum("attendant_gpu_power_watts")}};
  }
  return frame;
}

std::string WatchText(const ordered_json& f) {
  std::string devices;
  for (const ordered_json& name : f["devices"]) {
    absl::StrAppend(&devices, devices.empty() ? "" : ", ",
                    name.get<std::string>());
  }
  std::string text = absl::StrFormat("attendant %s on %s: %s\n\n",
                                     f["version"].get<std::string>(), devices,
                                     !f["healthy"].get<bool>() ? "UNHEALTHY"
                                     : f["ready"].get<bool>()  ? "ready"
                                                               : "not ready");
  absl::StrAppendFormat(
      &text,
      "calls     %.1f/s, in %s/s, out %s/s, %.3g TFLOP/s, %.1f launches/s\n",
      f["requests_per_s"].get<double>(), Bytes(f["in_bytes_per_s"]),
      Bytes(f["out_bytes_per_s"]),
      f["launched_flops_per_s"].get<double>() * 1e-12,
      f["launches_per_s"].get<double>());
  absl::StrAppendFormat(
      &text, "queue     %.0f waiting (%s), %.0f on the device, %.0f in all\n",
      f["queued_requests"].get<double>(), Bytes(f["queued_bytes"]),
      f["running_requests"].get<double>(), f["in_flight"].get<double>());
  const ordered_json& memory = f["memory"];
  absl::StrAppendFormat(&text, "memory    resident %s, host pool %s of %s\n",
                        Bytes(memory["resident_bytes"]),
                        Bytes(memory["host_pool_used_bytes"]),
                        Bytes(memory["host_pool_capacity_bytes"]));
  absl::StrAppendFormat(&text, "device    used %s of %s, peak %s\n",
                        Bytes(memory["device_used_bytes"]),
                        Bytes(memory["device_reserved_bytes"]),
                        Bytes(memory["device_peak_bytes"]));
  if (f.contains("gpu")) {
    absl::StrAppendFormat(&text, "gpu       %.0f %% busy, %.0f W\n",
                          f["gpu"]["utilization"].get<double>() * 100,
                          f["gpu"]["power_watts"].get<double>());
  }
  absl::StrAppendFormat(&text, "\n%-10s %12s %12s\n", "stage", "p50 ms",
                        "p99 ms");
  for (const auto& [stage, times] : f["stages"].items()) {
    absl::StrAppendFormat(&text, "%-10s %12s %12s\n", stage,
                          Ms(times["p50_ms"]), Ms(times["p99_ms"]));
  }
  absl::StrAppendFormat(&text, "%-10s %12s %12s\n", "in all",
                        Ms(f["duration"]["p50_ms"]),
                        Ms(f["duration"]["p99_ms"]));
  for (const auto& [code, rate] : f["errors_per_s"].items()) {
    absl::StrAppendFormat(&text, "errors    %s %.1f/s\n", code,
                          rate.get<double>());
  }
  return text;
}

}  // namespace attendant::client::cli
