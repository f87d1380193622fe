// The door for callers on the server's machine: tensors lie in shared memory,
// and only the call itself is a message.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/door.h"

namespace attendant::client {

// Asks the server for its region socket. UNIMPLEMENTED if it has none. Tensors
// that Prepare did not place are copied into memory of the door's and back.
absl::StatusOr<std::unique_ptr<Door>> OpenShmDoor(const std::string& target,
                                                  const ClientOptions& options);

// The same, waiting for nothing beyond `deadline`.
absl::StatusOr<std::unique_ptr<Door>> OpenShmDoorBy(
    std::chrono::steady_clock::time_point deadline, const std::string& target,
    const ClientOptions& options);

// Asks the server at `target`, once and half a second at most, whether it
// shares memory; false if it does not answer so. By `options`' TLS and token.
bool ServerSharesMemory(const std::string& target,
                        const ClientOptions& options);

}  // namespace attendant::client
