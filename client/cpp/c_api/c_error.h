// absl::Status -> the C interface's error.
#pragma once

#include "absl/status/status.h"
#include "client/cpp/c_api/attendant_client_c.h"

namespace attendant::client {

// Owned by whoever gets it, freed by attendant_error_free. NULL for OK.
attendant_error* MakeError(const absl::Status& status);

}  // namespace attendant::client
