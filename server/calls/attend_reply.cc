#include "server/calls/attend_reply.h"

#include <numeric>

#include "server/log/log.h"
#include "server/request/tensor_geometry.h"

namespace attendant::server {
namespace {

constexpr int kReceive = static_cast<int>(Stage::kReceive);
constexpr int kSend = static_cast<int>(Stage::kSend);

int64_t NanosBetween(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(to - from)
      .count();
}

void SetTimes(const std::array<int64_t, kNumStages>& ns, int64_t total_ns,
              v1::StageTimes* times) {
  times->set_receive_ns(ns[kReceive]);
  times->set_queue_ns(ns[static_cast<int>(Stage::kQueue)]);
  times->set_upload_ns(ns[static_cast<int>(Stage::kUpload)]);
  times->set_kernel_ns(ns[static_cast<int>(Stage::kKernel)]);
  times->set_download_ns(ns[static_cast<int>(Stage::kDownload)]);
  times->set_send_ns(ns[kSend]);
  times->set_total_ns(total_ns);
}

double Milliseconds(int64_t ns) { return static_cast<double>(ns) * 1e-6; }

// Where the time of an answer went that took long.
void LogSlow(const v1::AttendResponse& reply, const AttendOutcome& outcome,
             const std::string& trace_id) {
  const auto stage = [&](Stage which) {
    return Milliseconds(outcome.exposed_ns[static_cast<int>(which)]);
  };
  Log(LogLevel::kWarning, "slow request",
      {{"request_id", reply.request_id()},
       LogField::Optional("trace_id", trace_id),
       {"identity", outcome.identity},
       {"method", MethodName(outcome.method)},
       {"kernel", reply.served_by().kernel()},
       {"total_ms", Milliseconds(outcome.total_ns)},
       {"receive_ms", stage(Stage::kReceive)},
       {"queue_ms", stage(Stage::kQueue)},
       {"upload_ms", stage(Stage::kUpload)},
       {"kernel_ms", stage(Stage::kKernel)},
       {"download_ms", stage(Stage::kDownload)},
       {"send_ms", stage(Stage::kSend)},
       {"bytes_in", outcome.bytes_in},
       {"bytes_out", outcome.bytes_out}});
}

}  // namespace

AttendOutcome OutcomeOfAnswer(const JobResult& result,
                              Clock::time_point started,
                              Clock::time_point submitted,
                              Clock::time_point now) {
  AttendOutcome outcome;
  outcome.stage = Stage::kSend;
  outcome.total_ns = NanosBetween(started, now);
  for (int s = 0; s < kNumStages; ++s) {
    outcome.exposed_ns[s] = result.exposed_ns[s];
    outcome.busy_ns[s] = result.busy_ns[s];
  }
  outcome.exposed_ns[kReceive] = NanosBetween(started, submitted);
  outcome.exposed_ns[kSend] = 0;
  outcome.exposed_ns[kSend] =
      outcome.total_ns - std::accumulate(outcome.exposed_ns.begin(),
                                         outcome.exposed_ns.end(), int64_t{0});
  outcome.busy_ns[kReceive] = outcome.exposed_ns[kReceive];
  outcome.busy_ns[kSend] = outcome.exposed_ns[kSend];
  outcome.batch_requests = result.batch_requests;
  outcome.batch_tokens = result.batch_tokens;
  return outcome;
}

v1::AttendResponse DescribeAnswer(const ValidatedRequest& request,
                                  const JobResult& result,
                                  const AttendOutcome& outcome,
                                  const DeviceDescription& device) {
  v1::AttendResponse reply;
  reply.set_request_id(request.request_id);
  *reply.mutable_output() = request.output_spec;
  if (request.lse_spec.dtype() != v1::DATA_TYPE_UNSPECIFIED) {
    *reply.mutable_lse() = request.lse_spec;
  }
  v1::ServedBy* served_by = reply.mutable_served_by();
  served_by->set_backend(device.is_cuda ? v1::BACKEND_CUDA : v1::BACKEND_CPU);
  served_by->set_device_index(device.index);
  served_by->set_device_uuid(device.uuid);
  served_by->set_kernel(result.kernel);
  served_by->set_compute_dtype(ToProto(request.problem.dtype));
  SetTimes(outcome.exposed_ns, outcome.total_ns, reply.mutable_exposed());
  SetTimes(outcome.busy_ns, outcome.total_ns, reply.mutable_busy());
  reply.mutable_batch()->set_requests(result.batch_requests);
  reply.mutable_batch()->set_tokens(result.batch_tokens);
  v1::MemoryInfo* memory = reply.mutable_memory();
  memory->set_workspace_bytes(result.workspace_bytes);
  memory->set_input_bytes(request.input_bytes);
  memory->set_output_bytes(request.output_block_bytes());
  return reply;
}

void LogAnswer(const v1::AttendResponse& reply, const AttendOutcome& outcome,
               const std::string& trace_id, int64_t slow_ns) {
  if (slow_ns > 0 && outcome.total_ns >= slow_ns) {
    return LogSlow(reply, outcome, trace_id);
  }
  if (!LogEnabled(LogLevel::kDebug)) return;
  Log(LogLevel::kDebug, "request answered",
      {{"request_id", reply.request_id()},
       LogField::Optional("trace_id", trace_id),
       {"kernel", reply.served_by().kernel()},
       {"total_ms", Milliseconds(outcome.total_ns)},
       {"bytes_in", outcome.bytes_in},
       {"bytes_out", outcome.bytes_out},
       {"batch_requests", outcome.batch_requests}});
}

}  // namespace attendant::server
