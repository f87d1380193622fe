#include "kernels/cuda/buffer.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_status.h"

namespace attendant::kernels::cuda {

template <MemoryKind kind>
absl::StatusOr<Buffer<kind>> Buffer<kind>::Create(int64_t bytes) {
  if (bytes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("buffer of ", bytes, " bytes"));
  }
  Buffer buffer;
  if (bytes == 0) return buffer;
  void* data = nullptr;
  const cudaError_t error =
      kind == MemoryKind::kDevice
          ? cudaMalloc(&data, static_cast<size_t>(bytes))
          : cudaHostAlloc(&data, static_cast<size_t>(bytes),
                          cudaHostAllocPortable);
  if (error != cudaSuccess) {
    cudaGetLastError();  // out of memory must not surface in a later call
    return CudaStatus(
        error, absl::StrCat(
                   kind == MemoryKind::kDevice ? "cudaMalloc" : "cudaHostAlloc",
                   " of ", bytes, " bytes")
                   .c_str());
  }
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.bytes_ = bytes;
  return buffer;
}

template <MemoryKind kind>
Buffer<kind>::~Buffer() {
  if (data_ == nullptr) return;
  if constexpr (kind == MemoryKind::kDevice) {
    LogCudaError(cudaFree(data_), "cudaFree");
  } else {
    LogCudaError(cudaFreeHost(data_), "cudaFreeHost");
  }
}

template class Buffer<MemoryKind::kDevice>;
template class Buffer<MemoryKind::kPinned>;

}  // namespace attendant::kernels::cuda
