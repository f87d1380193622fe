// Flags that say which server is called, and how.
#pragma once

#include <chrono>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/attendant_client.h"
#include "client/cpp/cli/flags.h"

namespace attendant::client::cli {

std::span<const FlagSpec> ConnectionFlags();
// --json as a switch, and --help.
std::span<const FlagSpec> OutputFlags();

std::string TargetOf(const Flags& flags);
// Certificates and the token are read from the files the flags name; a token
// also from the environment variable ATTENDANT_TOKEN.
absl::StatusOr<ClientOptions> OptionsOf(const Flags& flags);
absl::StatusOr<std::chrono::nanoseconds> TimeoutOf(const Flags& flags);

struct Connection {
  Client client;
  std::chrono::nanoseconds timeout;
};
absl::StatusOr<Connection> Connect(const Flags& flags);

}  // namespace attendant::client::cli
