// How a door of one machine begins: a client whose calls name regions, and what
// the server said of itself.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "client/cpp/attendant_client.h"

namespace attendant::client {

struct SameHostClient {
  Client client;
  std::string owner;  // the options', or a random one
  ServerInfo info;
};

// Looks for answers up to kSameHostBusyPoll before it sleeps, unless the
// options have it never look. Errors: Client::Create's; GetServerInfo's within
// ten seconds and by `deadline`, after "door 'NAME': ".
absl::StatusOr<SameHostClient> ConnectSameHost(
    std::string_view door, const std::string& target,
    const ClientOptions& options,
    std::chrono::steady_clock::time_point deadline);

}  // namespace attendant::client
