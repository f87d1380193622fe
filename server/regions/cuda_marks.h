// RegionDevice::MarkAfter on a GPU.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/regions/region_device.h"

namespace attendant::server {

// Thread-safe. Marks may outlive it.
class CudaMarks {
 public:
  explicit CudaMarks(int device);
  ~CudaMarks();

  // As RegionDevice::MarkAfter. INVALID_ARGUMENT for events that CUDA knows no
  // more.
  absl::StatusOr<std::unique_ptr<DeviceMark>> After(
      const std::vector<void*>& events);

 private:
  class Streams;
  class Mark;
  const int device_;
  const std::shared_ptr<Streams> streams_;
};

}  // namespace attendant::server
