// A region in POSIX shared memory, by name. Nothing stops its owner from
// cutting it short, so it is never mapped: bytes are read and written by calls,
// which fail where a mapping would kill the server.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/regions/region_memory.h"

namespace attendant::server {

// Opens the object. INVALID_ARGUMENT for a name that RegisterPosixRequest does
// not allow, an object that is not there (or not readable, or writable unless
// read_only), that is no regular file or is shorter than `bytes`.
absl::StatusOr<std::unique_ptr<RegionMemory>> OpenPosixMemory(
    const std::string& shm_name, int64_t bytes, bool read_only);

}  // namespace attendant::server
