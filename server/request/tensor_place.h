// Where a tensor of a request lies, if not in the job's own block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace attendant::server {

class RegionMemory;

// Default: inline; the bytes of the message in the job's block.
struct TensorPlace {
  // Set for a tensor in a region, which it keeps alive: the tensor begins at
  // `offset` of it.
  std::shared_ptr<RegionMemory> region;
  int64_t offset = 0;
  // Where the kernel finds it: then it has no room in the job's blocks.
  std::byte* kernel_memory = nullptr;
  // Where uploads read or downloads write: then it has no room in the host's
  // block.
  std::byte* host_memory = nullptr;

  bool in_region() const { return region != nullptr; }
  // A copy into or out of the job's host block is needed, as for inline bytes.
  bool staged() const {
    return kernel_memory == nullptr && host_memory == nullptr;
  }
};

}  // namespace attendant::server
