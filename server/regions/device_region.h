// A region in memory of the device that computes, whoever it belongs to.
#pragma once

#include <cstdint>
#include <memory>

#include "server/regions/region_device.h"
#include "server/regions/region_memory.h"

namespace attendant::server {

// `device` outlives every use; `memory` is at least `bytes` long.
std::unique_ptr<RegionMemory> MakeDeviceRegion(
    std::unique_ptr<DeviceMemory> memory, int64_t bytes, bool writable,
    RegionDevice* device);

}  // namespace attendant::server
