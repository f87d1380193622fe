#include "kernels/cuda/stream.h"

#include "kernels/cuda/cuda_status.h"

namespace attendant::kernels::cuda {

absl::StatusOr<Stream> Stream::Create(int priority) {
  cudaStream_t stream = nullptr;
  RETURN_IF_CUDA_ERROR(
      cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority));
  return Stream(stream);
}

Stream::~Stream() {
  if (stream_ != nullptr) {
    LogCudaError(cudaStreamDestroy(stream_), "cudaStreamDestroy");
  }
}

absl::Status Stream::Synchronize() const {
  return CudaStatus(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

absl::Status Stream::WaitFor(cudaEvent_t event) const {
  return CudaStatus(cudaStreamWaitEvent(stream_, event, 0),
                    "cudaStreamWaitEvent");
}

}  // namespace attendant::kernels::cuda
