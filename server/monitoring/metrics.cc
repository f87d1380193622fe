#include "server/monitoring/metrics.h"

#include <algorithm>
#include <limits>
#include <sstream>

#include "prometheus/text_serializer.h"
#include "server/monitoring/metric_families.h"

namespace attendant::server {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;
using Families = std::vector<MetricFamily>;

constexpr const char* kMethodNames[] = {"Attend",        "AttendStream",
                                        "GetServerInfo", "ModelInfer",
                                        "RegionService", "other"};
constexpr const char* kCodeNames[] = {"OK",
                                      "CANCELLED",
                                      "UNKNOWN",
                                      "INVALID_ARGUMENT",
                                      "DEADLINE_EXCEEDED",
                                      "NOT_FOUND",
                                      "ALREADY_EXISTS",
                                      "PERMISSION_DENIED",
                                      "RESOURCE_EXHAUSTED",
                                      "FAILED_PRECONDITION",
                                      "ABORTED",
                                      "OUT_OF_RANGE",
                                      "UNIMPLEMENTED",
                                      "INTERNAL",
                                      "UNAVAILABLE",
                                      "DATA_LOSS",
                                      "UNAUTHENTICATED"};
static_assert(std::size(kCodeNames) == kNumGrpcCodes);
constexpr int kOk = 0, kCancelled = 1, kDeadlineExceeded = 4;

// 10 us to 60 s, about three a decade.
std::vector<double> SecondsBuckets() {
  return {1e-5,   2.5e-5, 5e-5, 1e-4,   2.5e-4, 5e-4, 1e-3,
          2.5e-3, 5e-3,   1e-2, 2.5e-2, 5e-2,   0.1,  0.25,
          0.5,    1,      2.5,  5,      10,     30,   60};
}

std::vector<double> PowerBuckets(double first, double factor, int count) {
  std::vector<double> bounds(count);
  for (double& bound : bounds) {
    bound = first;
    first *= factor;
  }
  return bounds;
}

void AddHistogram(MetricFamily* family, const MetricLabels& labels,
                  const HistogramData& data) {
  auto& histogram = AddChild(family, labels).histogram;
  uint64_t cumulative = 0;
  for (size_t i = 0; i < data.counts.size(); ++i) {
    cumulative += data.counts[i];
    histogram.bucket.push_back(
        {cumulative, i < data.bounds.size()
                         ? data.bounds[i]
                         : std::numeric_limits<double>::infinity()});
  }
  histogram.sample_count = cumulative;
  histogram.sample_sum = data.sum;
}

void AddPerStage(Families* families, const char* name, const char* help,
                 const std::array<uint64_t, kNumStages>& counts) {
  MetricFamily& family = AddFamily(families, name, help, MetricType::Counter);
  for (int s = 0; s < kNumStages; ++s) {
    AddSample(&family, {{"stage", StageName(static_cast<Stage>(s))}},
              static_cast<double>(counts[s]));
  }
}

std::string DeviceLabel(const DeviceDescription& device) {
  return (device.is_cuda ? "cuda:" : "cpu:") + std::to_string(device.index);
}

void AddQueue(const EngineSnapshot& engine, Families* families) {
  AddGauge(families, "attendant_queued_requests",
           "Requests that wait for the device.", engine.queued_requests);
  AddGauge(families, "attendant_running_requests",
           "Requests in upload, kernel or download.", engine.running_requests);
  AddGauge(families, "attendant_queued_bytes",
           "Input and output bytes of waiting requests.",
           static_cast<double>(engine.queued_bytes));
  AddGauge(families, "attendant_queued_flops",
           "Floating-point operations of waiting requests.",
           engine.queued_flops);
}

void AddWork(const EngineSnapshot& engine, const MetricLabels& device,
             Families* families) {
  AddCounter(families, "attendant_launches_total",
             "Grouped launches on the device.",
             static_cast<double>(engine.launches), device);
  AddCounter(families, "attendant_launched_flops_total",
             "Floating-point operations launched, by the attention formula.",
             engine.launched_flops, device);
  AddCounter(families, "attendant_uploaded_bytes_total",
             "Bytes copied to the device.",
             static_cast<double>(engine.uploaded_bytes), device);
  AddCounter(families, "attendant_downloaded_bytes_total",
             "Bytes copied from the device.",
             static_cast<double>(engine.downloaded_bytes), device);
  AddCounter(families, "attendant_repairs_total",
             "Launches with tiles redone because a masked position held NaN or "
             "infinity.",
             static_cast<double>(engine.repairs), device);
  MetricFamily& checks =
      AddFamily(families, "attendant_self_checks_total",
                "Answers of the sampled share, recomputed in idle time: right, "
                "wrong, or dropped unchecked.",
                MetricType::Counter);
  const std::pair<const char*, int64_t> results[] = {
      {"right", engine.self_checks_right},
      {"wrong", engine.self_checks_wrong},
      {"dropped", engine.self_checks_dropped}};
  for (const auto& [result, count] : results) {
    AddSample(&checks, {{"result", result}}, static_cast<double>(count));
  }
}

void AddMemory(const EngineSnapshot& engine, const std::string& device,
               Families* families) {
  MetricFamily& memory =
      AddFamily(families, "attendant_device_memory_bytes",
                "Device memory: reserved by the pool, used now, most used, and "
                "used as kernel workspace.",
                MetricType::Gauge);
  const std::pair<const char*, int64_t> kinds[] = {
      {"reserved", engine.device_reserved_bytes},
      {"used", engine.device_used_bytes},
      {"peak", engine.device_peak_bytes},
      {"workspace", engine.device_workspace_bytes}};
  for (const auto& [kind, bytes] : kinds) {
    AddSample(&memory, {{"device", device}, {"kind", kind}},
              static_cast<double>(bytes));
  }
  AddGauge(families, "attendant_host_pool_capacity_bytes",
           "Host memory for tensors in flight (pinned for a GPU).",
           static_cast<double>(engine.host_pool_capacity_bytes));
  AddGauge(families, "attendant_host_pool_used_bytes",
           "Host pool memory that requests and unsent replies hold.",
           static_cast<double>(engine.host_pool_used_bytes));
}

}  // namespace

const char* MethodName(Method method) {
  return kMethodNames[static_cast<int>(method)];
}

const char* GrpcCodeName(int code) {
  return kCodeNames[code < 0 || code >= kNumGrpcCodes ? 2 : code];
}

HistogramData::HistogramData(std::vector<double> upper_bounds)
    : bounds(std::move(upper_bounds)), counts(bounds.size() + 1) {}

void HistogramData::Observe(double value) {
  const auto bucket = std::lower_bound(bounds.begin(), bounds.end(), value);
  ++counts[bucket - bounds.begin()];
  sum += value;
}

Metrics::Counters::Counters()
    : total(SecondsBuckets()),
      stages(kNumStages, HistogramData(SecondsBuckets())),
      batch_requests(PowerBuckets(1, 2, 11)),
      batch_tokens(PowerBuckets(16, 4, 10)) {}

Metrics::Metrics(BuildInfo build) : build_(std::move(build)) {}

void Metrics::Started(Method method) {
  std::lock_guard lock(mu_);
  ++counters_.started[static_cast<int>(method)];
  ++counters_.in_flight[static_cast<int>(method)];
}

void Metrics::FinishedLocked(Method method, int code) {
  if (code < 0 || code >= kNumGrpcCodes) code = 2;  // UNKNOWN
  --counters_.in_flight[static_cast<int>(method)];
  ++counters_.finished[static_cast<int>(method)][code];
}

void Metrics::Finished(Method method, int code) {
  std::lock_guard lock(mu_);
  FinishedLocked(method, code);
}

void Metrics::Finished(int code, const AttendOutcome& outcome) {
  const int stage = static_cast<int>(outcome.stage);
  std::lock_guard lock(mu_);
  FinishedLocked(outcome.method, code);
  counters_.bytes_in += outcome.bytes_in;
  Usage& usage = counters_.usage[outcome.identity];
  ++(code == kOk ? usage.answered : usage.refused);
  usage.bytes_in += outcome.bytes_in;
  if (code == kCancelled)
    ++counters_.cancelled[stage];
  else if (code == kDeadlineExceeded)
    ++counters_.missed[stage];
  else if (code != kOk)
    ++counters_.rejected[stage];
  if (code != kOk) return;
  counters_.bytes_out += outcome.bytes_out;
  usage.bytes_out += outcome.bytes_out;
  usage.kernel_seconds +=
      outcome.busy_ns[static_cast<int>(Stage::kKernel)] * 1e-9;
  counters_.total.Observe(outcome.total_ns * 1e-9);
  for (int s = 0; s < kNumStages; ++s) {
    counters_.stages[s].Observe(outcome.exposed_ns[s] * 1e-9);
    counters_.busy_seconds[s] += outcome.busy_ns[s] * 1e-9;
  }
  counters_.batch_requests.Observe(outcome.batch_requests);
  counters_.batch_tokens.Observe(outcome.batch_tokens);
}

int64_t Metrics::started(Method method) const {
  std::lock_guard lock(mu_);
  return static_cast<int64_t>(counters_.started[static_cast<int>(method)]);
}

int64_t Metrics::finished(Method method, int code) const {
  std::lock_guard lock(mu_);
  return static_cast<int64_t>(
      counters_.finished[static_cast<int>(method)][code]);
}

void Metrics::AddCalls(const Counters& counters, Families* families) {
  MetricFamily& started =
      AddFamily(families, "attendant_requests_started_total",
                "Calls that began.", MetricType::Counter);
  for (int m = 0; m < kNumMethods; ++m) {
    AddSample(&started, {{"method", kMethodNames[m]}},
              static_cast<double>(counters.started[m]));
  }
  MetricFamily& in_flight =
      AddFamily(families, "attendant_requests_in_flight",
                "Calls that began and have not ended.", MetricType::Gauge);
  for (int m = 0; m < kNumMethods; ++m) {
    AddSample(&in_flight, {{"method", kMethodNames[m]}},
              static_cast<double>(counters.in_flight[m]));
  }
  MetricFamily& finished =
      AddFamily(families, "attendant_requests_finished_total",
                "Calls that ended, by gRPC code.", MetricType::Counter);
  for (int m = 0; m < kNumMethods; ++m) {
    for (int c = 0; c < kNumGrpcCodes; ++c) {
      AddSample(&finished,
                {{"method", kMethodNames[m]}, {"code", kCodeNames[c]}},
                static_cast<double>(counters.finished[m][c]));
    }
  }
}

void Metrics::AddUsage(const Counters& counters, Families* families) {
  MetricFamily& calls = AddFamily(
      families, "attendant_identity_requests_total",
      "Calls for attention that ended, by identity of the policy and result.",
      MetricType::Counter);
  for (const auto& [identity, usage] : counters.usage) {
    AddSample(&calls, {{"identity", identity}, {"result", "answered"}},
              static_cast<double>(usage.answered));
    AddSample(&calls, {{"identity", identity}, {"result", "refused"}},
              static_cast<double>(usage.refused));
  }
  MetricFamily& bytes =
      AddFamily(families, "attendant_identity_bytes_total",
                "Message bytes of calls for attention, by identity.",
                MetricType::Counter);
  for (const auto& [identity, usage] : counters.usage) {
    AddSample(&bytes, {{"identity", identity}, {"direction", "in"}},
              static_cast<double>(usage.bytes_in));
    AddSample(&bytes, {{"identity", identity}, {"direction", "out"}},
              static_cast<double>(usage.bytes_out));
  }
  MetricFamily& seconds = AddFamily(
      families, "attendant_identity_kernel_seconds_total",
      "Device time of answered calls, by identity.", MetricType::Counter);
  for (const auto& [identity, usage] : counters.usage) {
    AddSample(&seconds, {{"identity", identity}}, usage.kernel_seconds);
  }
}

void Metrics::AddEnds(const Counters& counters, Families* families) {
  AddPerStage(families, "attendant_requests_rejected_total",
              "Attend calls that ended with an error, by the last stage "
              "reached (cancellations and missed deadlines are apart).",
              counters.rejected);
  AddPerStage(families, "attendant_requests_cancelled_total",
              "Attend calls that their caller cancelled, by the last stage "
              "reached.",
              counters.cancelled);
  AddPerStage(families, "attendant_deadlines_missed_total",
              "Attend calls whose deadline passed, by the last stage reached.",
              counters.missed);
  AddCounter(families, "attendant_received_bytes_total",
             "Bytes of Attend request messages.",
             static_cast<double>(counters.bytes_in));
  AddCounter(families, "attendant_sent_bytes_total",
             "Bytes of Attend reply messages.",
             static_cast<double>(counters.bytes_out));
}

void Metrics::AddTimes(const Counters& counters, Families* families) {
  AddHistogram(&AddFamily(families, "attendant_request_duration_seconds",
                          "Answered Attend calls, from metadata seen to reply "
                          "handed to gRPC.",
                          MetricType::Histogram),
               {}, counters.total);
  MetricFamily& stages =
      AddFamily(families, "attendant_stage_duration_seconds",
                "Exposed time of each stage of answered Attend calls; the "
                "stages of a call add up to its request duration.",
                MetricType::Histogram);
  for (int s = 0; s < kNumStages; ++s) {
    AddHistogram(&stages, {{"stage", StageName(static_cast<Stage>(s))}},
                 counters.stages[s]);
  }
  MetricFamily& busy =
      AddFamily(families, "attendant_stage_busy_seconds_total",
                "Busy time of each stage of answered Attend calls; stages of a "
                "call may overlap.",
                MetricType::Counter);
  for (int s = 0; s < kNumStages; ++s) {
    AddSample(&busy, {{"stage", StageName(static_cast<Stage>(s))}},
              counters.busy_seconds[s]);
  }
  AddHistogram(
      &AddFamily(families, "attendant_batch_requests",
                 "Requests that shared the launch of an answered call.",
                 MetricType::Histogram),
      {}, counters.batch_requests);
  AddHistogram(&AddFamily(families, "attendant_batch_tokens",
                          "Query tokens that shared the launch of an answered "
                          "call.",
                          MetricType::Histogram),
               {}, counters.batch_tokens);
}

std::vector<MetricFamily> Metrics::Collect(const EngineSnapshot& engine,
                                           const DeviceDescription& device,
                                           bool ready) const {
  Counters counters;
  {
    std::lock_guard lock(mu_);
    counters = counters_;
  }
  const std::string device_label = DeviceLabel(device);
  Families families;
  AddGauge(&families, "attendant_build_info", "Always 1; facts are labels.", 1,
           {{"version", build_.version},
            {"build", build_.build},
            {"backend", device.is_cuda ? "cuda" : "cpu"},
            {"device_name", device.name},
            {"device_uuid", device.uuid}});
  AddGauge(&families, "attendant_ready", "1 while new requests are welcome.",
           ready ? 1 : 0);
  if (device.peak_flops > 0) {
    AddGauge(&families, "attendant_device_peak_flops",
             "Most 16-bit floating-point operations a second: multiprocessors "
             "times their highest clock times what each does a cycle.",
             device.peak_flops, {{"device", device_label}});
  }
  AddGauge(&families, "attendant_healthy",
           "0 after an error of the device that only a restart heals.",
           engine.healthy ? 1 : 0);
  AddCalls(counters, &families);
  AddUsage(counters, &families);
  AddEnds(counters, &families);
  AddTimes(counters, &families);
  AddQueue(engine, &families);
  AddWork(engine, {{"device", device_label}}, &families);
  AddMemory(engine, device_label, &families);
  return families;
}

std::string RenderPrometheusText(const std::vector<MetricFamily>& families) {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families);
  return out.str();
}

}  // namespace attendant::server
