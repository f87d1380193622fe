// Flags that say which server is called, and how.
#pragma once

#include <chrono>
#include <span>

#include "absl/status/statusor.h"
#include "client/cpp/attendant_client.h"
#include "client/cpp/cli/flags.h"

namespace attendant::client::cli {

std::span<const FlagSpec> ConnectionFlags();

struct Connection {
  Client client;
  std::chrono::nanoseconds timeout;
};
// Certificates and the token are read from the files the flags name; a token
// also from the environment variable ATTENDANT_TOKEN.
absl::StatusOr<Connection> Connect(const Flags& flags);

}  // namespace attendant::client::cli
