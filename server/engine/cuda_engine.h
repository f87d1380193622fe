// The engine's parts on a GPU: device choice, memory, port and executor.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "server/engine/device_engine.h"

namespace attendant::server {

// The GPU that options.cuda_device names by index or UUID, or the first usable
// one. FAILED_PRECONDITION, saying why, if there is no such GPU.
absl::StatusOr<DeviceDescription> ChooseCudaDevice(
    const EngineOptions& options);

// Takes all memory that the engine will ever use on `device`: device memory,
// pinned memory, streams. RESOURCE_EXHAUSTED if that much is not there.
absl::StatusOr<EngineParts> MakeCudaParts(const EngineOptions& options,
                                          const DeviceDescription& device);

}  // namespace attendant::server
