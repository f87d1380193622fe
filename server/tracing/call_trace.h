// The trace that one call belongs to: taken in from its metadata, carried into
// logs and the reply's trailing metadata, and told to a collector as spans.
#pragma once

#include <grpcpp/server_context.h>

#include <array>
#include <string>

#include "server/calls/attend_reply.h"
#include "server/engine/attention_engine.h"
#include "server/tracing/span_exporter.h"
#include "server/tracing/traceparent.h"

namespace attendant::server {

// Where spans go. Outlives the calls.
struct Tracer {
  SpanExporter* exporter = nullptr;  // null = nowhere
  double share = 0;  // of the calls without a traceparent that begin a trace
};

// What became of a call.
struct CallEnd {
  int code = 0;  // of gRPC
  std::string error{};
  std::string request_id{};
  Clock::time_point started{};
  // Of an answer; null otherwise.
  const JobResult* result = nullptr;
  Clock::time_point submitted{};  // of an answer: its last byte had come
};

// Constant after construction, so any thread may read it.
class CallTrace {
 public:
  static constexpr char kParentKey[] = "traceparent";
  static constexpr char kResponseKey[] = "traceresponse";

  // Of a call whose metadata has come. What is no traceparent is ignored, as
  // W3C has it.
  CallTrace(const grpc::ServerContextBase& context, const Tracer& tracer);

  // Empty = the call belongs to no trace.
  const std::string& trace_id() const { return trace_id_; }
  // The value of traceresponse: the trace and this call's own span.
  std::string Response() const;
  // Adds it to the trailing metadata of a call that brought a traceparent.
  void Respond(grpc::ServerContextBase* context) const;

  // Exports the call's span, and of an answer its stages', if the trace is
  // recorded.
  void End(const AttendOutcome& outcome, const CallEnd& end) const;

 private:
  const Tracer& tracer_;
  std::string trace_id_, span_id_, parent_id_;
  bool sampled_ = false;
};

}  // namespace attendant::server
