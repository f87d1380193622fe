// Memory on the GPU of this process's own, for tensors that come from the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/cuda/driver.h"
#include "client/cpp/door_memory.h"

namespace attendant::client::cuda {

// On `device`: from cuMemAlloc, or (`vmm`) from cuMemCreate, which a server
// takes over its region socket. `before_free` is told the first byte's address.
// RESOURCE_EXHAUSTED if the GPU has no room.
using BeforeFree = std::function<void(const std::byte* base)>;
absl::StatusOr<std::unique_ptr<DoorMemory>> MakeDeviceMemory(
    const Driver& driver, int device, int64_t bytes, bool vmm,
    BeforeFree before_free);

// INTERNAL if the driver refuses.
absl::Status CopyToHost(const Driver& driver, int device, std::byte* to,
                        const std::byte* from, int64_t bytes);

// The device of that UUID, as GetServerInfo has it. UNIMPLEMENTED if this
// process sees no such device.
absl::StatusOr<int> DeviceOf(const Driver& driver, const std::string& uuid);

}  // namespace attendant::client::cuda
