#include "server/calls/unanswered_call.h"

#include <chrono>

#include "server/log/log.h"
#include "server/request/errors.h"

namespace attendant::server {
namespace {

bool IsRefusal(const CallEnvironment& environment, const grpc::Status& answer) {
  return answer.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED ||
         (answer.error_code() == grpc::StatusCode::UNAVAILABLE &&
          environment.draining);
}

// As the line of a call that the policy refuses (caller_access.cc).
void LogRefusal(const grpc::ServerContextBase& context,
                const grpc::Status& answer, const CallTrace& trace,
                const UnansweredCall& call) {
  if (!LogEnabled(LogLevel::kInfo)) return;
  Log(LogLevel::kInfo, "call refused",
      {{"audit", true},
       {"method", MethodName(call.method)},
       {"peer", context.peer()},
       LogField::Optional("identity", call.identity),
       LogField::Optional("request_id", call.request_id),
       LogField::Optional("trace_id", trace.trace_id()),
       {"code", static_cast<int>(answer.error_code())},
       {"reason", answer.error_message()},
       {"stage", StageName(call.stage)}});
}

void LogFailure(const grpc::ServerContextBase& context,
                const grpc::Status& answer, const CallTrace& trace,
                const UnansweredCall& call, CallEnvironment* environment) {
  environment->errors.Add({std::chrono::system_clock::now(), call.request_id,
                           answer.error_code(), call.stage,
                           answer.error_message()});
  if (IsRefusal(*environment, answer))
    return LogRefusal(context, answer, trace, call);
  const LogLevel level = answer.error_code() == grpc::StatusCode::INTERNAL
                             ? LogLevel::kError
                             : LogLevel::kDebug;
  if (!LogEnabled(level)) return;
  Log(level,
      call.method == Method::kAttendStream ? "stream failed" : "request failed",
      {{"request_id", call.request_id},
       LogField::Optional("trace_id", trace.trace_id()),
       {"code", static_cast<int>(answer.error_code())},
       {"error", answer.error_message()},
       {"stage", StageName(call.stage)}});
}

}  // namespace

grpc::Status EndWithoutAnswer(CallEnvironment* environment,
                              grpc::ServerContextBase* context,
                              const CallTrace& trace,
                              const absl::Status& status,
                              const UnansweredCall& call) {
  grpc::Status answer = ToGrpcStatus(status);
  if (const int64_t retry_ms = RetryPushbackMs(status); retry_ms >= 0) {
    context->AddTrailingMetadata("grpc-retry-pushback-ms",
                                 std::to_string(retry_ms));
  }
  AttendOutcome outcome;
  outcome.stage = call.stage;
  outcome.method = call.method;
  outcome.identity = call.identity;
  outcome.bytes_in = call.bytes_in;
  if (status.ok()) {
    environment->metrics->Finished(call.method, answer.error_code());
  } else {
    environment->metrics->Finished(answer.error_code(), outcome);
    LogFailure(*context, answer, trace, call, environment);
  }
  trace.Respond(context);
  trace.End(outcome, {.code = answer.error_code(),
                      .error = answer.error_message(),
                      .request_id = call.request_id,
                      .started = call.started});
  return answer;
}

}  // namespace attendant::server
