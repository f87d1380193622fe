// What /statusz shows, as JSON. Its numbers are the families of one scrape.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "prometheus/metric_family.h"
#include "server/engine/attention_engine.h"
#include "server/monitoring/recent_errors.h"
#include "server/options/server_options.h"

namespace attendant::server {

struct StatusReport {
  std::chrono::system_clock::time_point time;
  std::string version, build;
  std::string why_not_live, why_not_ready;  // empty = live, ready
  DeviceDescription device;
  std::vector<ShownFlag> flags;
  std::vector<RecentError> errors;  // newest first
  std::vector<prometheus::MetricFamily> families;
};

// {"time": "2026-01-02T03:04:05.678Z", "time_seconds": ..., "version", "build",
//  "why_not_live", "why_not_ready", "device": {...},
//  "flags": [{"name", "value", "initial"}],
//  "errors": [{"time", "request_id", "code", "stage", "message"}],
//  "metrics": {family: [{"labels": {...}, "value": 1}]}}
// where a histogram's sample has sum, count and cumulative buckets
// [[upper bound, count], ...] instead, the last bound being "+Inf". A value
// that JSON cannot write is null; bytes that are not UTF-8 are replaced.
std::string RenderStatusJson(const StatusReport& report);

}  // namespace attendant::server
