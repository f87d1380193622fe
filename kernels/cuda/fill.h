// Fills of device memory, enqueued on a stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"

namespace attendant::kernels::cuda {

// data[0, count) = value. `data` is 4-byte aligned device memory; count >= 0.
absl::Status FillFloat(float* data, int64_t count, float value,
                       cudaStream_t stream);

// data[0, bytes) = 0.
absl::Status FillZero(void* data, int64_t bytes, cudaStream_t stream);

}  // namespace attendant::kernels::cuda
