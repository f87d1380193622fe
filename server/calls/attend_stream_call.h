// One stream of AttendStream: header or join -> accepted -> chunks in, chunks
// out -> final. What streams of one upload share is in upload.h.
#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include <memory>

#include "server/calls/attend_call.h"

namespace attendant::server {

// The reactor of a stream whose metadata has come and of whose messages none
// has. It deletes itself. Refuses at once, reading nothing, when too many
// bodies are on their way; a header when draining (joins of uploads under way
// are still served).
//
// In memory, beside the tensors' own: one message arriving within the
// connection's window, and kStreamMessages - 1 being copied.
//
// Threads: gRPC's parse and copy what is small; the engine's copy what is large
// and send output; none of them waits.
grpc::ServerGenericBidiReactor* StartAttendStreamCall(
    CallEnvironment* environment, grpc::GenericCallbackServerContext* context,
    std::shared_ptr<const Identity> identity = nullptr);

}  // namespace attendant::server
