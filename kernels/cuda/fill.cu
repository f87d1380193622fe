#include <algorithm>

#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/fill.h"

namespace attendant::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 1024;

__global__ void __launch_bounds__(kThreads)
    FillFloatKernel(float* data, int64_t count, float value) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       i < count; i += stride) {
    data[i] = value;
  }
}

}  // namespace

absl::Status FillFloat(float* data, int64_t count, float value,
                       cudaStream_t stream) {
  if (count == 0) return absl::OkStatus();
  const int64_t blocks = (count + kThreads - 1) / kThreads;
  FillFloatKernel<<<static_cast<unsigned>(std::min(blocks, kMaxBlocks)),
                    kThreads, 0, stream>>>(data, count, value);
  return CudaStatus(cudaGetLastError(), "FillFloat");
}

absl::Status FillZero(void* data, int64_t bytes, cudaStream_t stream) {
  if (bytes == 0) return absl::OkStatus();
  return CudaStatus(
      cudaMemsetAsync(data, 0, static_cast<size_t>(bytes), stream),
      "cudaMemsetAsync");
}

}  // namespace attendant::kernels::cuda
