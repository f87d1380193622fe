// Plain C++ declarations of the decode launch wrappers, one per class and type.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/sm90/decode_params.h"

namespace attendant::kernels::sm90 {

// Enqueues the kernel, `wide` with tiles of 128 packed rows instead of 64, and
// after it the combine kernel over `combine_strands` strands (0 = none).
using DecodeLauncher = cudaError_t (*)(const DecodeParams& params, bool wide,
                                       int combine_strands,
                                       cudaStream_t stream);

cudaError_t LaunchDecode64Bf16(const DecodeParams&, bool, int, cudaStream_t);
cudaError_t LaunchDecode64Fp16(const DecodeParams&, bool, int, cudaStream_t);
cudaError_t LaunchDecode128Bf16(const DecodeParams&, bool, int, cudaStream_t);
cudaError_t LaunchDecode128Fp16(const DecodeParams&, bool, int, cudaStream_t);
cudaError_t LaunchDecode256Bf16(const DecodeParams&, bool, int, cudaStream_t);
cudaError_t LaunchDecode256Fp16(const DecodeParams&, bool, int, cudaStream_t);

}  // namespace attendant::kernels::sm90
