// Plain C++ declarations of the launch wrappers in the .cu files. None waits.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "kernels/base/data_type.h"
#include "kernels/sm80/descriptors.h"

namespace attendant::kernels::sm80 {

// The forward kernel of every head class (tile_table.h), by type and variant:
// `num_tiles` tiles with `shared_bytes` of dynamic shared memory.
using ForwardLauncher = absl::Status(int head_class, int64_t num_tiles,
                                     int64_t shared_bytes,
                                     const LaunchArgs& args,
                                     cudaStream_t stream);
ForwardLauncher LaunchForwardBf16Plain;
ForwardLauncher LaunchForwardBf16General;
ForwardLauncher LaunchForwardFp16Plain;
ForwardLauncher LaunchForwardFp16General;

// Folds the partials of split runs into O and LSE: the first args.num_rows
// rows of the launch.
absl::Status LaunchCombine(DataType dtype, const LaunchArgs& args,
                           cudaStream_t stream);

// Computes again every row, of the first args.num_rows, whose O is not finite.
absl::Status LaunchRepair(DataType dtype, const LaunchArgs& args,
                          cudaStream_t stream);

}  // namespace attendant::kernels::sm80
