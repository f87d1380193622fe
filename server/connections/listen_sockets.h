// Listening sockets of our own, for HOST:PORT and unix:/path.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/connections/unique_fd.h"

namespace attendant::server {

struct ListenSocket {
  UniqueFd fd;          // non-blocking
  std::string address;  // as asked for, the port never 0
};

// One for every address that the host's name has, all at one port. A stale
// unix socket is removed first; the new one has mode 0600. UNAVAILABLE naming
// the address and why it cannot be bound.
absl::StatusOr<std::vector<ListenSocket>> Listen(const std::string& address);

// What a dead server left at `path` goes. UNAVAILABLE if a server answers
// there, or if it is no socket: then it stays.
absl::Status RemoveStaleSocket(const std::string& path);

}  // namespace attendant::server
