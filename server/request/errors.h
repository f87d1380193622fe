// Errors with a structured detail: field path, value, bound.
#pragma once

#include <grpcpp/support/status.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "attendant/v1/error.pb.h"

namespace attendant::server {

// What an error repeats of a caller's text: a long one is cut, between two
// characters of UTF-8.
std::string Shortened(const std::string& text);

// "q.shape[3] is 257, must be 1..256"; the parts travel as a payload too. An
// empty field reads "257 ..., must be ...". Field and value are Shortened.
absl::Status InvalidField(const std::string& field, const std::string& value,
                          const std::string& bound);
absl::Status UnimplementedField(const std::string& field,
                                const std::string& value,
                                const std::string& bound);
// RESOURCE_EXHAUSTED that may succeed after `retry_ms`.
absl::Status Overloaded(const std::string& field, const std::string& value,
                        const std::string& bound, int64_t retry_ms);

// A status of any code with a detail, its text kept.
absl::Status WithDetail(absl::Status status, const std::string& field,
                        const std::string& value, const std::string& bound);
// The detail a status carries, if any.
std::optional<v1::ErrorDetail> DetailOf(const absl::Status& status);

// absl -> gRPC with the detail in grpc-status-details-bin (RpcStatus). An error
// without one gets what its code says: DEADLINE_EXCEEDED is about "deadline",
// CANCELLED about "call", UNAVAILABLE and INTERNAL about "server".
grpc::Status ToGrpcStatus(const absl::Status& status);
// Milliseconds for the trailer grpc-retry-pushback-ms; -1 = none.
int64_t RetryPushbackMs(const absl::Status& status);

}  // namespace attendant::server
