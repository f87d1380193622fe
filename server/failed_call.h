// The end of a call that gets no answer, whichever door it came through.
#pragma once

#include <grpcpp/server_context.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "server/attend_call.h"
#include "server/tracing/call_trace.h"

namespace attendant::server {

// What is known of the call by then.
struct FailedCall {
  Method method;
  Stage stage;
  Clock::time_point started;
  std::string request_id{};
  std::string identity{};  // "" = nobody asked
  int64_t bytes_in = 0;
};

// Counts, logs and traces the failure and sets the trailer that tells when to
// come again. `status` is not OK. Returns what the call is to be finished with.
grpc::Status EndFailedCall(CallEnvironment* environment,
                           grpc::ServerContextBase* context,
                           const CallTrace& trace, const absl::Status& status,
                           const FailedCall& call);

}  // namespace attendant::server
