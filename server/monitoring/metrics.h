// Every Prometheus family of the server: names, help, buckets, in one place.
//
// Counters live in one struct under one lock, and a scrape is one copy of it:
// so started = finished (over all codes) + in flight at every scrape.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "prometheus/metric_family.h"
#include "server/engine/attention_engine.h"

namespace attendant::server {

// kAttendStream counts every stream.
enum class Method : int {
  kAttend,
  kAttendStream,
  kGetServerInfo,
  kModelInfer,
  kRegions,
  kOther
};
inline constexpr int kNumMethods = 6;
const char* MethodName(Method method);
inline constexpr int kNumGrpcCodes = 17;
// Of a grpc::StatusCode, "INVALID_ARGUMENT"; UNKNOWN for other numbers.
const char* GrpcCodeName(int code);

// How a call for attention ended, beside its gRPC code.
struct AttendOutcome {
  Method method = Method::kAttend;     // the door it came by
  std::string identity = "anonymous";  // of the policy: few
  Stage stage = Stage::kReceive;       // the last one reached
  int64_t bytes_in = 0;   // of the request message, 0 = never arrived
  int64_t bytes_out = 0;  // of the reply message
  // The rest is read only when the code is OK.
  std::array<int64_t, kNumStages> exposed_ns{};
  std::array<int64_t, kNumStages> busy_ns{};
  int64_t total_ns = 0;
  int64_t batch_requests = 0;
  int64_t batch_tokens = 0;
};

// Fixed buckets; no lock of its own.
struct HistogramData {
  explicit HistogramData(std::vector<double> upper_bounds);
  void Observe(double value);

  std::vector<double> bounds;
  std::vector<uint64_t> counts;  // one more than bounds: the +Inf bucket
  double sum = 0;
};

// Constant facts, shown as labels of attendant_build_info.
struct BuildInfo {
  std::string version;
  std::string build;
};

// Thread-safe.
class Metrics {
 public:
  explicit Metrics(BuildInfo build);

  void Started(Method method);
  // `code` is a grpc::StatusCode. Once for every Started.
  void Finished(Method method, int code);
  // Counts the end of a call for attention and all that is known of it, at
  // once.
  void Finished(int code, const AttendOutcome& outcome);

  int64_t started(Method method) const;
  int64_t finished(Method method, int code) const;

  // Gauges are given by those who own them.
  std::vector<prometheus::MetricFamily> Collect(const EngineSnapshot& engine,
                                                const DeviceDescription& device,
                                                bool ready) const;

 private:
  // What one identity had of the server.
  struct Usage {
    uint64_t answered = 0, refused = 0;
    uint64_t bytes_in = 0, bytes_out = 0;
    double kernel_seconds = 0;
  };
  struct Counters {
    Counters();
    std::array<uint64_t, kNumMethods> started{};
    std::array<uint64_t, kNumMethods> in_flight{};
    std::array<std::array<uint64_t, kNumGrpcCodes>, kNumMethods> finished{};
    std::array<uint64_t, kNumStages> rejected{}, cancelled{}, missed{};
    std::array<double, kNumStages> busy_seconds{};
    uint64_t bytes_in = 0, bytes_out = 0;
    HistogramData total;
    std::vector<HistogramData> stages;
    HistogramData batch_requests, batch_tokens;
    std::map<std::string, Usage> usage;  // by identity
  };
  using Families = std::vector<prometheus::MetricFamily>;
  static void AddCalls(const Counters& counters, Families* families);
  static void AddEnds(const Counters& counters, Families* families);
  static void AddUsage(const Counters& counters, Families* families);
  static void AddTimes(const Counters& counters, Families* families);
  void FinishedLocked(Method method, int code);

  const BuildInfo build_;
  mutable std::mutex mu_;
  Counters counters_;  // guarded by mu_
};

// The text format that Prometheus scrapes.
std::string RenderPrometheusText(
    const std::vector<prometheus::MetricFamily>& families);

}  // namespace attendant::server
