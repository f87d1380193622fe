// HostMemoryPool over one fixed piece of host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "server/request/host_memory.h"

namespace attendant::server {

// A pool over [memory, memory + bytes), which `owner` keeps alive: pinned
// memory, for example. When the pool is destroyed while blocks are out (a reply
// still being sent), it goes on living until the last of them is back. With
// `scrub` a block is zeroed as it is given back, by whoever gives it back.
std::unique_ptr<HostMemoryPool> MakeHostPool(std::byte* memory, int64_t bytes,
                                             std::shared_ptr<void> owner,
                                             bool scrub = false);

// A pool over pages of its own, taken from the system as they are used: huge
// ones where it has them.
// RESOURCE_EXHAUSTED if there is no address space for it.
absl::StatusOr<std::unique_ptr<HostMemoryPool>> CreatePlainHostPool(
    int64_t bytes, bool scrub = false);

}  // namespace attendant::server
