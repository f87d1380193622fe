// The end of a call without an answer, whichever door it came through: of one
// that failed, or of a joined stream that has carried its part.
#pragma once

#include <grpcpp/server_context.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "server/calls/attend_call.h"
#include "server/tracing/call_trace.h"

namespace attendant::server {

// What is known of the call by then.
struct UnansweredCall {
  Method method;
  Stage stage;
  Clock::time_point started;
  std::string request_id{};
  std::string identity{};  // "" = nobody asked
  int64_t bytes_in = 0;
};

// Counts and traces the end; logs a failure (a refusal as an audit line) and
// sets the trailer that tells when to come again. Returns what the call is to
// be finished with.
grpc::Status EndWithoutAnswer(CallEnvironment* environment,
                              grpc::ServerContextBase* context,
                              const CallTrace& trace,
                              const absl::Status& status,
                              const UnansweredCall& call);

}  // namespace attendant::server
