// Plain C++ declarations of the decode launch wrappers, one per class and type.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/sm90/decode_params.h"
#include "kernels/sm90/decode_table.h"

namespace attendant::kernels::sm90 {

struct DecodeLaunch {
  DecodeWidth width;
  int blocks;           // that share the items
  int combine_strands;  // that the combine kernel goes through; 0 = none does
  int cluster_size;     // see DecodeGroup::cluster_size
  bool merges_by_arrival;  // see DecodeGroup
  bool one_block_per_sm;   // there are no more of them
  bool modifies_scores;    // of some sequence, see DecodeProblem
  bool has_tails;          // some sequence has, see DecodeTails
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
