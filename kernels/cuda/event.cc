#include "kernels/cuda/event.h"

#include "kernels/cuda/cuda_status.h"

namespace attendant::kernels::cuda {

absl::StatusOr<Event> Event::Create(Kind kind, bool blocking) {
  unsigned flags = cudaEventDefault;
  if (kind == Kind::kOrder) flags |= cudaEventDisableTiming;
  if (blocking) flags |= cudaEventBlockingSync;
  cudaEvent_t event = nullptr;
  RETURN_IF_CUDA_ERROR(cudaEventCreateWithFlags(&event, flags));
  return Event(event);
}

Event::~Event() {
  if (event_ != nullptr) {
    LogCudaError(cudaEventDestroy(event_), "cudaEventDestroy");
  }
}

absl::Status Event::Record(cudaStream_t stream) const {
  return CudaStatus(cudaEventRecord(event_, stream), "cudaEventRecord");
}

absl::Status Event::Synchronize() const {
  return CudaStatus(cudaEventSynchronize(event_), "cudaEventSynchronize");
}

absl::StatusOr<bool> Event::IsDone() const {
  const cudaError_t error = cudaEventQuery(event_);
  if (error == cudaErrorNotReady) {
    (void)cudaGetLastError();  // no error, and the next launch's neither
    return false;
  }
  RETURN_IF_CUDA_ERROR(error);
  return true;
}

absl::StatusOr<int64_t> ElapsedNanoseconds(const Event& start,
                                           const Event& end) {
  float milliseconds = 0;
  RETURN_IF_CUDA_ERROR(
      cudaEventElapsedTime(&milliseconds, start.get(), end.get()));
  return static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
}

}  // namespace attendant::kernels::cuda
