// What a region is to those who use it: bytes that lie somewhere, for as long
// as anybody holds the object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace attendant::server {

// Numbers are those of attendant.v1.RegionKind.
enum class RegionKind : int {
  kHostBuffer = 1,
  kDeviceBuffer = 2,
  kMemfd = 3,
  kPosix = 4,
  kCudaIpc = 5,
  kCudaVmm = 6,
};
inline constexpr int kNumRegionKinds = 7;     // 0 is none
const char* RegionKindName(RegionKind kind);  // "host_buffer", "memfd", ...

// Thread-safe. Memory of another process changes whenever that process likes:
// nothing that is read here may decide where the server reads or writes.
class RegionMemory {
 public:
  virtual ~RegionMemory() = default;

  virtual int64_t bytes() const = 0;
  virtual bool writable() const = 0;

  // Mapped memory that can neither shrink nor fault, and that the device's copy
  // engine reaches if there is a device; null = only Read and Write reach it.
  virtual std::byte* host() const { return nullptr; }
  // Memory of the device that computes; null = none.
  virtual std::byte* device() const { return nullptr; }
  // A cudaEvent_t that a call waits for before it uses the memory
  // (event_waits); null = none.
  virtual void* ready_event() const { return nullptr; }

  // [offset, offset + bytes) lies within the region. INTERNAL or
  // FAILED_PRECONDITION (the file was cut short) if the bytes can't be moved.
  virtual absl::Status Read(int64_t offset, int64_t bytes, std::byte* to) = 0;
  virtual absl::Status Write(int64_t offset, int64_t bytes,
                             const std::byte* from) = 0;

  // What lies behind: two regions of one identity share bytes, the first of
  // them identity_offset() into it.
  virtual std::string identity() const = 0;
  virtual int64_t identity_offset() const { return 0; }
};

}  // namespace attendant::server
