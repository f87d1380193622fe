// A region in memory of the server's own.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "server/regions/region_device.h"
#include "server/regions/region_memory.h"

namespace attendant::server {

// Plain zeroed pages, pinned for `device` if there is one. RESOURCE_EXHAUSTED
// if the system or the device gives none.
absl::StatusOr<std::unique_ptr<RegionMemory>> MakeHostBuffer(
    int64_t bytes, RegionDevice* device);

}  // namespace attendant::server
