// What regions ask of a GPU: pinning, IPC handles, VMM handles, buffers.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "server/regions/region_device.h"

namespace attendant::server {

// For device `index` of this process. Memory it gave may outlive it.
absl::StatusOr<std::shared_ptr<RegionDevice>> CreateCudaRegionDevice(int index);

}  // namespace attendant::server
