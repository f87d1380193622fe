// A region in a sealed memfd that a caller passed over the region socket.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "server/connections/unique_fd.h"
#include "server/regions/region_device.h"
#include "server/regions/region_memory.h"

namespace attendant::server {

// Maps the first `bytes` of the file and registers them with `device`, if there
// is one. The seals make its size constant, so that no access faults, whatever
// the caller does; the descriptor is closed. INVALID_ARGUMENT for what is no
// memfd, is not sealed, is too short or can't be mapped as asked.
absl::StatusOr<std::unique_ptr<RegionMemory>> MapMemfd(UniqueFd fd,
                                                       int64_t bytes,
                                                       bool read_only,
                                                       RegionDevice* device);

}  // namespace attendant::server
