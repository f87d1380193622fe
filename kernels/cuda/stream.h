// Owner of a CUDA stream.
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace attendant::kernels::cuda {

// A non-blocking stream of the device that was current at Create. Move-only;
// destroying it does not wait: queued work still runs to its end.
class Stream {
 public:
  // `priority`: lower numbers first, within the device's range; 0 = default.
  static absl::StatusOr<Stream> Create(int priority = 0);

  Stream() = default;
  Stream(Stream&& other) noexcept
      : stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~Stream();

  cudaStream_t get() const { return stream_; }
  // Waits for everything enqueued so far.
  absl::Status Synchronize() const;
  // Work enqueued on this stream from now on waits for `event`.
  absl::Status WaitFor(cudaEvent_t event) const;

 private:
  explicit Stream(cudaStream_t stream) : stream_(stream) {}
  cudaStream_t stream_ = nullptr;
};

}  // namespace attendant::kernels::cuda
