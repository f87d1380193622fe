// Text that a flag sends to a file.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace attendant::client::cli {

// "-" is stdout. INVALID_ARGUMENT, naming `flag`, for a file that cannot be
// written whole.
absl::Status WriteTextFile(const std::string& flag, const std::string& path,
                           const std::string& text);

}  // namespace attendant::client::cli
