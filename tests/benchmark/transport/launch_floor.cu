#include <cuda_runtime.h>

#include <algorithm>

#include "tests/benchmark/transport/launch_floor.h"

namespace attendant::benchmark {
namespace {

__global__ void Nothing() {}

}  // namespace

LaunchFloor::LaunchFloor(size_t bytes_up, size_t bytes_down)
    : up_(bytes_up), down_(bytes_down) {
  const size_t bytes = std::max<size_t>(std::max(up_, down_), 1);
  cudaStream_t stream = nullptr;
  ready_ = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) ==
               cudaSuccess &&
           cudaMallocHost(&host_, bytes) == cudaSuccess &&
           cudaMalloc(&device_, bytes) == cudaSuccess;
  stream_ = stream;
}

LaunchFloor::~LaunchFloor() {
  cudaFree(device_);
  cudaFreeHost(host_);
  if (stream_ != nullptr) cudaStreamDestroy(static_cast<cudaStream_t>(stream_));
}

bool LaunchFloor::Run() {
  const auto stream = static_cast<cudaStream_t>(stream_);
  cudaMemcpyAsync(device_, host_, up_, cudaMemcpyHostToDevice, stream);
  Nothing<<<1, 128, 0, stream>>>();
  cudaMemcpyAsync(host_, device_, down_, cudaMemcpyDeviceToHost, stream);
  return cudaStreamSynchronize(stream) == cudaSuccess;
}

}  // namespace attendant::benchmark
