// Attention of one task in the decode form (see simd_kernels.h): all rows of a
// KV head's group in one pass over K and V.
#pragma once

#include <cstdint>

#include "kernels/cpu/row_output.h"
#include "kernels/cpu/simd_kernels.h"

namespace attendant::kernels::cpu {

// Scratch of DecodeAttention, in floats.
int64_t DecodeScratchFloats(const AttentionProblem& problem);

// The task has at most kMaxDecodeRows rows. `scratch` is aligned to 64 bytes.
void DecodeAttention(const SimdKernels& simd, const AttentionTask& task,
                     float* scratch);

}  // namespace attendant::kernels::cpu
