// Targets that name several servers: "10.0.0.1:50051,10.0.0.2:50051".
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/attendant_client.h"

namespace attendant::client {

// Whether calls are spread over servers: because `options` say so, or because
// `target` is a list.
bool IsBalanced(const std::string& target, const ClientOptions& options);

// What gRPC is to be told: a list by its scheme ("ipv4:..."), every other
// target as it is. INVALID_ARGUMENT for a list that holds names, or IPv4 beside
// IPv6.
absl::StatusOr<std::string> GrpcTarget(const std::string& target);

// INVALID_ARGUMENT if such calls cannot go by `door` ("striped", "shm", "ipc"):
// all parts of one call must reach one server.
absl::Status CheckDoorBalances(const std::string& door,
                               const std::string& target,
                               const ClientOptions& options);

}  // namespace attendant::client
