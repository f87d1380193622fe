#include "server/tracing/call_trace.h"

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "server/monitoring/metrics.h"

namespace attendant::server {
namespace {

// Nanoseconds since 1970 of a moment of the steady clock.
class WallClock {
 public:
  int64_t operator()(Clock::time_point at) const {
    return wall_ns_ -
           std::chrono::duration_cast<std::chrono::nanoseconds>(now_ - at)
               .count();
  }

 private:
  const Clock::time_point now_ = Clock::now();
  const int64_t wall_ns_ =
      std::chrono::duration_cast<std::chrono::nanoseconds>(
          std::chrono::system_clock::now().time_since_epoch())
          .count();
};

bool Chance(double share) {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return share > 0 && std::uniform_real_distribution<>()(random) < share;
}

const char* RpcMethod(Method method) {
  switch (method) {
    case Method::kAttendStream:
      return "attendant.v1.AttentionService/AttendStream";
    case Method::kModelInfer:
      return "inference.GRPCInferenceService/ModelInfer";
    default:
      return "attendant.v1.AttentionService/Attend";
  }
}

}  // namespace

CallTrace::CallTrace(const grpc::ServerContextBase& context,
                     const Tracer& tracer)
    : tracer_(tracer) {
  const auto& metadata = context.client_metadata();
  if (const auto found = metadata.find(kParentKey); found != metadata.end()) {
    if (auto parent =
            ParseTraceParent({found->second.data(), found->second.length()})) {
      trace_id_ = std::move(parent->trace_id);
      parent_id_ = std::move(parent->parent_id);
      sampled_ = parent->sampled;
    }
  }
  if (trace_id_.empty() && tracer.exporter != nullptr && Chance(tracer.share)) {
    trace_id_ = NewTraceId();
    sampled_ = true;
  }
  if (!trace_id_.empty()) span_id_ = NewSpanId();
}

std::string CallTrace::Response() const {
  return trace_id_.empty()
             ? std::string()
             : FormatTraceParent({trace_id_, span_id_,
                                  sampled_ && tracer_.exporter != nullptr});
}

void CallTrace::Respond(grpc::ServerContextBase* context) const {
  if (!parent_id_.empty()) {
    context->AddTrailingMetadata(kResponseKey, Response());
  }
}

void CallTrace::End(const AttendOutcome& outcome, const CallEnd& end) const {
  if (!sampled_ || tracer_.exporter == nullptr) return;
  const WallClock wall;
  const Clock::time_point now = Clock::now();
  std::vector<Span> spans;
  spans.reserve(1 + kNumStages);  // `call` below stays where it is
  const auto add = [&](std::string name, Clock::time_point from,
                       Clock::time_point to) -> Span& {
    Span& span = spans.emplace_back();
    span.trace_id = trace_id_;
    span.name = std::move(name);
    span.begin_unix_ns = wall(from);
    span.end_unix_ns = wall(to);
    return span;
  };
  Span& call = add(RpcMethod(outcome.method), end.started, now);
  call.is_call = true;
  call.span_id = span_id_;
  call.parent_id = parent_id_;
  call.error = end.error;
  call.attributes = {{"rpc.system", std::string("grpc")},
                     {"rpc.grpc.status_code", int64_t{end.code}},
                     {"attendant.request_id", end.request_id},
                     {"attendant.identity", outcome.identity},
                     {"attendant.stage", std::string(StageName(outcome.stage))},
                     {"attendant.bytes_in", outcome.bytes_in},
                     {"attendant.bytes_out", outcome.bytes_out}};
  if (end.result != nullptr) {
    const JobResult& result = *end.result;
    call.attributes.emplace_back("attendant.kernel", result.kernel);
    call.attributes.emplace_back("attendant.batch_requests",
                                 result.batch_requests);
    Clock::time_point first = now, last = end.submitted;
    for (const JobResult::Extent& extent : result.extents) {
      if (extent.begin == Clock::time_point()) continue;
      first = std::min(first, extent.begin);
      last = std::max(last, extent.end);
    }
    add(StageName(Stage::kReceive), end.started, end.submitted);
    // Of a call computed while it still came, no queue is left to be seen.
    add(StageName(Stage::kQueue), end.submitted,
        std::max(first, end.submitted));
    for (const Stage stage :
         {Stage::kUpload, Stage::kKernel, Stage::kDownload}) {
      const JobResult::Extent& extent =
          result.extents[static_cast<size_t>(stage)];
      if (extent.begin == Clock::time_point()) continue;
      add(StageName(stage), extent.begin, extent.end);
    }
    add(StageName(Stage::kSend), last, now);
    for (size_t i = 1; i < spans.size(); ++i) {
      spans[i].span_id = NewSpanId();
      spans[i].parent_id = span_id_;
    }
  }
  tracer_.exporter->Add(std::move(spans));
}

}  // namespace attendant::server
