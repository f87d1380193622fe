// What a C caller filled in -> the client's own types.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/attend_args.h"
#include "client/cpp/attendant_client.h"
#include "client/cpp/c_api/attendant_client_c.h"

namespace attendant::client {

// Lists are copied; tensors and buffers stay the caller's. INVALID_ARGUMENT for
// a null pointer with a count, a negative count, or a struct_size that no
// version has, and for tensors in GPU memory unless `device_tensors`.
absl::StatusOr<AttendArgs> ToAttendArgs(const attendant_attend_args* given,
                                        bool device_tensors);

struct CClientOptions {
  ClientOptions client;
  std::string door = "unary";
  int max_async_calls = 64;
};
// NULL = the defaults. INVALID_ARGUMENT for numbers below 0.
absl::StatusOr<CClientOptions> ToClientOptions(
    const attendant_client_options* given);

}  // namespace attendant::client
