// Regions through a server on loopback: tensors go in and come out by memory
// that both sides share.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/selftest/door_checks.h"

namespace attendant::server {

// A sealed memfd handed over the region socket at `socket`.
absl::StatusOr<std::string> CheckSharedMemory(
    const std::shared_ptr<grpc::Channel>& channel, const std::string& socket,
    const DoorProbe& probe);

// A buffer of the server's own, written and read by RPC; `on_device` = in the
// GPU's memory.
absl::StatusOr<std::string> CheckBuffer(
    const std::shared_ptr<grpc::Channel>& channel, bool on_device,
    const DoorProbe& probe);

}  // namespace attendant::server
