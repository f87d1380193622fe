// The device port of a real GPU.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/event.h"
#include "kernels/cuda/stream.h"
#include "server/engine/device_port.h"

namespace attendant::server {

// Three streams of one device. Every thread that calls it must have made that
// device current.
class CudaPort final : public DevicePort {
 public:
  // On the current device.
  static absl::StatusOr<std::unique_ptr<CudaPort>> Create();

  absl::Status Upload(Queue queue, void* device, const void* host,
                      int64_t pitch, int64_t width, int64_t height) override;
  absl::Status Download(Queue queue, void* host, const void* device,
                        int64_t pitch, int64_t width, int64_t height) override;
  absl::Status FillZero(Queue queue, void* device, int64_t bytes) override;
  absl::Status FillFloat(Queue queue, float* device, int64_t count,
                         float value) override;
  absl::Status Launch(const kernels::AttentionPlan& plan,
                      kernels::LaunchContext context) override;
  absl::Status Repair(const kernels::AttentionPlan& plan,
                      kernels::LaunchContext context) override;
  absl::Status ReadFlag(int32_t* host, const void* device) override;
  absl::Status Mark(Queue queue, Queue stage, int slot) override;
  absl::StatusOr<bool> IsReached(Queue stage, int slot) override;
  absl::Status Synchronize() override;
  bool IsSticky(const absl::Status& status) const override;

 private:
  CudaPort() = default;
  cudaStream_t stream(Queue queue) const {
    return streams_[static_cast<int>(queue)].get();
  }
  absl::Status Copy(Queue queue, void* to, const void* from, int64_t pitch,
                    int64_t width, int64_t height);
  // After work was enqueued: an error of the enqueuing itself.
  static absl::Status LastError(const char* what);

  kernels::cuda::Stream streams_[kNumQueues];
  kernels::cuda::Event marks_[kNumQueues][kNumSlots];  // by stage
};

}  // namespace attendant::server
