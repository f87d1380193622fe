// One GET of a small page.
#pragma once

#include <chrono>
#include <string>

#include "absl/status/statusor.h"

namespace attendant::client::cli {

// Body of http://ADDRESS/PATH with code 200; plain HTTP, one connection a call.
// address: "host:port". UNAVAILABLE if nobody answers in time, INTERNAL for
// another code or more than 16 MiB.
absl::StatusOr<std::string> HttpGet(const std::string& address,
                                    const std::string& path,
                                    std::chrono::milliseconds timeout);

}  // namespace attendant::client::cli
