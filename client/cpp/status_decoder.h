// grpc::Status -> absl::Status, with the server's structured detail.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace attendant::client {

// The detail comes from grpc-status-details-bin (RpcStatus holding an
// ErrorDetail, error.proto); a detail that cannot be read is left out.
absl::Status DecodeStatus(const grpc::Status& status);

}  // namespace attendant::client
