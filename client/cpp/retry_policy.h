// Whether and when a failed call is sent again. Pure: clock and chance are the
// caller's.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "client/cpp/attendant_client.h"

namespace attendant::client {

// A failed call, as a retry must know it.
struct FailedCall {
  absl::Status status;
  // The trailer grpc-retry-pushback-ms as it came; none = the server gave none.
  std::optional<std::string> pushback;
};

// How long to wait before attempt `attempts_made` + 1, or none: the error is
// final. `chance` is uniform in [0, 1); `remaining` is the time the call's
// deadline leaves, and a wait that would use it up is not begun.
std::optional<std::chrono::nanoseconds> RetryDelay(
    const RetryOptions& options, const FailedCall& call, int attempts_made,
    double chance, std::chrono::nanoseconds remaining);

}  // namespace attendant::client
