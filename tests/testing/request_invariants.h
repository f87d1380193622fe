// What must hold of every request that the validator lets through: whatever a
// kernel reads or writes lies within the request's own blocks.
#pragma once

#include <string>

#include "attendant/v1/attention.pb.h"
#include "server/request/problem_validator.h"

namespace attendant::testing {

// Empty, or what is violated.
std::string InvariantViolation(const server::ValidatedRequest& request);

// Parses and validates `request` for a CPU after giving each `*_data` field,
// as long as that is at most `max_bytes`, the size that the error asks for: so
// random specs get past the check of their bytes. Returns OK or the last error.
absl::StatusOr<std::unique_ptr<server::ValidatedRequest>> ValidateFitted(
    v1::AttendRequest request, size_t max_bytes);

}  // namespace attendant::testing
