#include "server/monitoring/status_report.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "server/log/log.h"
#include "server/monitoring/metrics.h"

namespace attendant::server {
namespace {

using Json = nlohmann::ordered_json;
using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

Json Device(const DeviceDescription& device) {
  Json json = {{"kind", device.is_cuda ? "GPU" : "CPU"},
               {"name", device.name},
               {"index", device.index}};
  if (device.is_cuda) {
    json["uuid"] = device.uuid;
    json["memory_bytes"] = device.memory_bytes;
    json["compute_capability"] = device.properties.compute_capability;
    json["multiprocessors"] = device.properties.num_sms;
  } else {
    json["instruction_set"] = device.instruction_set;
    json["threads"] = device.properties.num_sms;
  }
  return json;
}

Json Flags(const std::vector<ShownFlag>& flags) {
  Json json = Json::array();
  for (const ShownFlag& flag : flags) {
    json.push_back({{"name", flag.name},
                    {"value", flag.value},
                    {"initial", flag.initial}});
  }
  return json;
}

Json Errors(const std::vector<RecentError>& errors) {
  Json json = Json::array();
  for (const RecentError& error : errors) {
    json.push_back({{"time", FormatLogTime(error.time)},
                    {"request_id", error.request_id},
                    {"code", GrpcCodeName(error.code)},
                    {"stage", StageName(error.stage)},
                    {"message", error.message}});
  }
  return json;
}

void AddNumbers(const ClientMetric& metric, MetricType type, Json* sample) {
  if (type == MetricType::Counter) {
    (*sample)["value"] = metric.counter.value;
  } else if (type == MetricType::Histogram) {
    (*sample)["sum"] = metric.histogram.sample_sum;
    (*sample)["count"] = metric.histogram.sample_count;
    Json& buckets = (*sample)["buckets"] = Json::array();
    for (const ClientMetric::Bucket& bucket : metric.histogram.bucket) {
      buckets.push_back({std::isinf(bucket.upper_bound)
                             ? Json("+Inf")
                             : Json(bucket.upper_bound),
                         bucket.cumulative_count});
    }
  } else {
    (*sample)["value"] = metric.gauge.value;
  }
}

Json MetricSamples(const std::vector<MetricFamily>& families) {
  Json json = Json::object();
  for (const MetricFamily& family : families) {
    Json& samples = json[family.name] = Json::array();
    for (const ClientMetric& metric : family.metric) {
      Json sample = {{"labels", Json::object()}};
      for (const auto& label : metric.label) {
        sample["labels"][label.name] = label.value;
      }
      AddNumbers(metric, family.type, &sample);
      samples.push_back(std::move(sample));
    }
  }
  return json;
}

}  // namespace

std::string RenderStatusJson(const StatusReport& report) {
  const std::chrono::duration<double> since_epoch =
      report.time.time_since_epoch();
  const Json json = {{"time", FormatLogTime(report.time)},
                     {"time_seconds", since_epoch.count()},
                     {"version", report.version},
                     {"build", report.build},
                     {"why_not_live", report.why_not_live},
                     {"why_not_ready", report.why_not_ready},
                     {"device", Device(report.device)},
                     {"flags", Flags(report.flags)},
                     {"errors", Errors(report.errors)},
                     {"metrics", MetricSamples(report.families)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace attendant::server
