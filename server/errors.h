// Errors with a structured detail: field path, value, bound.
#pragma once

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"

namespace attendant::server {

// "q.shape[3] is 257, must be 1..256"; the parts travel as a payload too.
absl::Status InvalidField(const std::string& field, const std::string& value,
                          const std::string& bound);
absl::Status UnimplementedField(const std::string& field,
                                const std::string& value,
                                const std::string& bound);
// RESOURCE_EXHAUSTED that may succeed after `retry_ms`.
absl::Status Overloaded(const std::string& field, const std::string& value,
                        const std::string& bound, int64_t retry_ms);

// absl -> gRPC with the detail in grpc-status-details-bin (RpcStatus).
grpc::Status ToGrpcStatus(const absl::Status& status);
// Milliseconds for the trailer grpc-retry-pushback-ms; -1 = none.
int64_t RetryPushbackMs(const absl::Status& status);

}  // namespace attendant::server
