// Plain C++ declarations of the decode launch wrappers, one per class and type.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/sm90/decode_params.h"
#include "kernels/sm90/decode_table.h"

namespace attendant::kernels::sm90 {

struct DecodeLaunch {
  DecodeWidth width;
  // Few rows: blocks that share the items. More rows: strands that the combine
  // kernel merges afterwards (0 = none).
  int blocks;
  int combine_strands;
  cudaStream_t stream;
};

// Enqueues the kernel, and the combine kernel if one is needed.
using DecodeLauncher = cudaError_t (*)(const DecodeParams&,
                                       const DecodeLaunch&);

cudaError_t LaunchDecode64Bf16(const DecodeParams&, const DecodeLaunch&);
cudaError_t LaunchDecode64Fp16(const DecodeParams&, const DecodeLaunch&);
cudaError_t LaunchDecode128Bf16(const DecodeParams&, const DecodeLaunch&);
cudaError_t LaunchDecode128Fp16(const DecodeParams&, const DecodeLaunch&);
cudaError_t LaunchDecode256Bf16(const DecodeParams&, const DecodeLaunch&);
cudaError_t LaunchDecode256Fp16(const DecodeParams&, const DecodeLaunch&);

}  // namespace attendant::kernels::sm90
