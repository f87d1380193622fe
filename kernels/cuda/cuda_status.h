// CUDA runtime errors as absl::Status.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"

namespace attendant::kernels::cuda {

// OK for cudaSuccess. Out of memory -> RESOURCE_EXHAUSTED, no driver or device
// -> FAILED_PRECONDITION, a bad argument -> INVALID_ARGUMENT, all else
// INTERNAL. The message is "`what`: error name: error text". Sticky errors,
// after which every CUDA call of this process fails, are marked (IsSticky);
// any other is taken from CUDA's memory, so that this thread's next launch does
// not report it as its own.
absl::Status CudaStatus(cudaError_t error, const char* what);

// True if the status came from a sticky CUDA error: the process must drain,
// become not ready and exit.
bool IsSticky(const absl::Status& status);

// True for errors that leave the context unusable until the process ends.
bool IsStickyError(cudaError_t error);

// For destructors, which cannot return: writes the error to stderr.
void LogCudaError(cudaError_t error, const char* what);

}  // namespace attendant::kernels::cuda

// RETURN_IF_CUDA_ERROR(cudaMalloc(&data, bytes));
#define RETURN_IF_CUDA_ERROR(call)                                         \
  do {                                                                     \
    if (const cudaError_t error_of_call = (call);                          \
        error_of_call != cudaSuccess) {                                    \
      return ::attendant::kernels::cuda::CudaStatus(error_of_call, #call); \
    }                                                                      \
  } while (false)
