// What regions ask of the device that computes. The CPU has none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace attendant::server {

// Memory of the device, which goes when the object goes.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual std::byte* data() const = 0;
  // A cudaEvent_t to wait for before each use (MarkAfter); null = none.
  virtual void* ready_event() const { return nullptr; }
};

// A place in the device's work that it has or has not got to.
class DeviceMark {
 public:
  virtual ~DeviceMark() = default;
  virtual absl::StatusOr<bool> reached() = 0;
};

// Thread-safe; called from any thread. Errors name field, value and bound.
class RegionDevice {
 public:
  virtual ~RegionDevice() = default;

  // Makes host pages that stay where they are reachable for the copy engine,
  // until what it returns goes. `writable` = the device may write them.
  virtual absl::StatusOr<std::shared_ptr<void>> Register(std::byte* host,
                                                         int64_t bytes,
                                                         bool writable) = 0;
  // Zeroed memory of the device.
  virtual absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(
      int64_t bytes) = 0;
  // `handle` is a cudaIpcMemHandle_t; [offset, offset + bytes) lies in the
  // allocation it names. A handle is opened once, however many regions use it.
  virtual absl::StatusOr<std::unique_ptr<DeviceMemory>> OpenIpc(
      const std::string& handle, int64_t offset, int64_t bytes,
      const std::string& ready_event) = 0;
  // `fd` is an exported VMM handle of `bytes`; the caller closes it.
  virtual absl::StatusOr<std::unique_ptr<DeviceMemory>> ImportVmm(
      int fd, int64_t bytes, const std::string& ready_event) = 0;

  // Behind all `events` (of ready_event), as they were last recorded now; null
  // = the device is there already. Holds up nothing that computes. At most 256
  // marks live at a time: RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<std::unique_ptr<DeviceMark>> MarkAfter(
      const std::vector<void*>& events) = 0;

  // Between memory of the device and any host memory; returns when it is done.
  virtual absl::Status CopyIn(std::byte* device, const std::byte* host,
                              int64_t bytes) = 0;
  virtual absl::Status CopyOut(std::byte* host, const std::byte* device,
                               int64_t bytes) = 0;
};

}  // namespace attendant::server
