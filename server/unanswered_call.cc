#include "server/unanswered_call.h"

#include <chrono>

#include "server/errors.h"
#include "server/log.h"

namespace attendant::server {
namespace {

void LogFailure(const grpc::Status& answer, const CallTrace& trace,
                const UnansweredCall& call, RecentErrors* errors) {
  errors->Add({std::chrono::system_clock::now(), call.request_id,
               answer.error_code(), call.stage, answer.error_message()});
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
  const grpc::Status answer = ToGrpcStatus(status);
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
    LogFailure(answer, trace, call, &environment->errors);
  }
  trace.Respond(context);
  trace.End(outcome, {.code = answer.error_code(),
                      .error = answer.error_message(),
                      .request_id = call.request_id,
                      .started = call.started});
  return answer;
}

}  // namespace attendant::server
