#include "client/cpp/retry_policy.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"

namespace attendant::client {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

bool MaySucceedLater(const absl::Status& status) {
  if (status.code() == absl::StatusCode::kUnavailable) return true;
  // gRPC itself says this of a message over a size limit, which never fits.
  return status.code() == absl::StatusCode::kResourceExhausted &&
         !absl::StrContains(status.message(), "larger than max");
}

nanoseconds Backoff(const RetryOptions& options, int attempts_made,
                    double chance) {
  const double ceiling = std::min<double>(
      options.max_backoff.count(), std::ldexp(options.initial_backoff.count(),
                                              std::min(attempts_made - 1, 30)));
  return nanoseconds(static_cast<int64_t>(ceiling * chance * 1e6));
}

}  // namespace

std::optional<nanoseconds> RetryDelay(const RetryOptions& options,
                                      const FailedCall& call, int attempts_made,
                                      double chance, nanoseconds remaining) {
  if (attempts_made >= options.max_attempts || !MaySucceedLater(call.status)) {
    return std::nullopt;
  }
  nanoseconds delay = Backoff(options, attempts_made, chance);
  if (call.pushback.has_value()) {
    int64_t pushback_ms;
    // As gRPC has it: negative or unreadable means never.
    if (!absl::SimpleAtoi(*call.pushback, &pushback_ms) || pushback_ms < 0 ||
        pushback_ms > duration_cast<milliseconds>(remaining).count()) {
      return std::nullopt;
    }
    // A tenth of chance on top: callers told the same time do not meet again.
    delay = nanoseconds(static_cast<int64_t>(static_cast<double>(pushback_ms) *
                                             1e6 * (1 + 0.1 * chance)));
  }
  if (delay >= remaining) return std::nullopt;
  return delay;
}

}  // namespace attendant::client
