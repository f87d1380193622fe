// Makes a device current for a scope.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/cuda_status.h"

namespace attendant::kernels::cuda {

// The calling thread's current device is `device` until the end of the scope,
// then again what it was. Errors are logged; the next CUDA call reports them.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    LogCudaError(cudaGetDevice(&previous_), "cudaGetDevice");
    if (previous_ != device) {
      LogCudaError(cudaSetDevice(device), "cudaSetDevice");
      changed_ = true;
    }
  }
  ~DeviceGuard() {
    if (changed_) LogCudaError(cudaSetDevice(previous_), "cudaSetDevice");
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = 0;
  bool changed_ = false;
};

}  // namespace attendant::kernels::cuda
