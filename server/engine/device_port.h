// What the CUDA executor asks of a device. The real one is CudaPort; tests have
// one that computes on the host.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/attention.h"

namespace attendant::server {

// Three queues of device work, each in order, side by side. Everything is
// enqueued and returns at once, but for Synchronize. For one thread.
class DevicePort {
 public:
  enum class Queue : int { kUpload, kKernel, kDownload };
  static constexpr int kNumQueues = 3;
  static constexpr int kNumSlots = 3;  // batches under way

  virtual ~DevicePort() = default;

  // height runs of width bytes, on both sides `pitch` apart.
  virtual absl::Status Upload(Queue queue, void* device, const void* host,
                              int64_t pitch, int64_t width, int64_t height) = 0;
  virtual absl::Status Download(Queue queue, void* host, const void* device,
                                int64_t pitch, int64_t width,
                                int64_t height) = 0;
  // device[0, bytes) = 0.
  virtual absl::Status FillZero(Queue queue, void* device, int64_t bytes) = 0;
  // device[0, count) = value.
  virtual absl::Status FillFloat(Queue queue, float* device, int64_t count,
                                 float value) = 0;

  // On kKernel; the port sets the context's stream.
  virtual absl::Status Launch(const kernels::AttentionPlan& plan,
                              kernels::LaunchContext context) = 0;
  virtual absl::Status Repair(const kernels::AttentionPlan& plan,
                              kernels::LaunchContext context) = 0;
  // Copies a repair flag to pinned host memory, on kKernel.
  virtual absl::Status ReadFlag(int32_t* host, const void* device) = 0;

  // Marks the end of a stage of `slot` on `queue`; IsReached tells whether the
  // queue got there. A stage is named by the queue it is usually on.
  virtual absl::Status Mark(Queue queue, Queue stage, int slot) = 0;
  virtual absl::StatusOr<bool> IsReached(Queue stage, int slot) = 0;

  // Waits for all that was enqueued.
  virtual absl::Status Synchronize() = 0;
  // True if the device can't be used any more after this error.
  virtual bool IsSticky(const absl::Status& status) const = 0;
};

}  // namespace attendant::server
