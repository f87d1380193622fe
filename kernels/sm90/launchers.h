// Plain C++ declarations of the launch wrappers, one per class and dtype.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/sm90/kernel_params.h"

namespace attendant::kernels::sm90 {

// Enqueues the kernel of its class on `num_blocks` multiprocessors.
using PrefillLauncher = cudaError_t (*)(const PrefillParams& params,
                                        bool score_mod, int num_blocks,
                                        cudaStream_t stream);

cudaError_t LaunchPrefill64Bf16(const PrefillParams&, bool, int, cudaStream_t);
cudaError_t LaunchPrefill64Fp16(const PrefillParams&, bool, int, cudaStream_t);
cudaError_t LaunchPrefill128Bf16(const PrefillParams&, bool, int, cudaStream_t);
cudaError_t LaunchPrefill128Fp16(const PrefillParams&, bool, int, cudaStream_t);
cudaError_t LaunchPrefill192x128Bf16(const PrefillParams&, bool, int,
                                     cudaStream_t);
cudaError_t LaunchPrefill192x128Fp16(const PrefillParams&, bool, int,
                                     cudaStream_t);
cudaError_t LaunchPrefill192Bf16(const PrefillParams&, bool, int, cudaStream_t);
cudaError_t LaunchPrefill192Fp16(const PrefillParams&, bool, int, cudaStream_t);
cudaError_t LaunchPrefill256Bf16(const PrefillParams&, bool, int, cudaStream_t);
cudaError_t LaunchPrefill256Fp16(const PrefillParams&, bool, int, cudaStream_t);

}  // namespace attendant::kernels::sm90
