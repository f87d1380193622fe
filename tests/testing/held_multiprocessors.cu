#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "kernels/base/status_macros.h"
#include "tests/testing/held_multiprocessors.h"

namespace attendant::testing {
namespace {

// running[i]: set by block i. No counter: PCIe knows no atomics on the host's
// memory.
__global__ void HoldKernel(volatile int* release, volatile int* running) {
  if (threadIdx.x != 0) return;
  running[blockIdx.x] = 1;
  while (*release == 0) __nanosleep(2000);
}

absl::Status ToStatus(cudaError_t error) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::UnavailableError(cudaGetErrorString(error));
}

}  // namespace

absl::StatusOr<std::unique_ptr<HeldMultiprocessors>> HeldMultiprocessors::Hold(
    int count) {
  std::unique_ptr<HeldMultiprocessors> held(new HeldMultiprocessors);
  cudaStream_t stream = nullptr;
  RETURN_IF_ERROR(
      ToStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)));
  held->stream_ = stream;
  const size_t ints = static_cast<size_t>(count) + 1;
  RETURN_IF_ERROR(
      ToStatus(cudaMallocHost(reinterpret_cast<void**>(&held->shared_),
                              ints * sizeof(int))));
  volatile int* const shared = held->shared_;
  std::fill_n(shared, ints, 0);
  int bytes = 0;
  RETURN_IF_ERROR(ToStatus(cudaDeviceGetAttribute(
      &bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0)));
  RETURN_IF_ERROR(ToStatus(cudaFuncSetAttribute(
      HoldKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)));
  HoldKernel<<<count, 32, bytes, stream>>>(held->shared_, held->shared_ + 1);
  RETURN_IF_ERROR(ToStatus(cudaGetLastError()));
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (std::accumulate(shared + 1, shared + ints, 0) < count) {
    if (std::chrono::steady_clock::now() > limit) {
      return absl::UnavailableError("the blocks did not all start");
    }
  }
  return held;
}

HeldMultiprocessors::~HeldMultiprocessors() {
  if (shared_ != nullptr) *static_cast<volatile int*>(shared_) = 1;
  if (stream_ != nullptr) {
    cudaStreamSynchronize(static_cast<cudaStream_t>(stream_));
    cudaStreamDestroy(static_cast<cudaStream_t>(stream_));
  }
  if (shared_ != nullptr) cudaFreeHost(shared_);
}

}  // namespace attendant::testing
