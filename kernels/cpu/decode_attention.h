// Attention in the decode form (see simd_kernels.h): all rows of a KV head's
// group, or of several heads' groups, in one pass over K and V.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/row_output.h"
#include "kernels/cpu/simd_kernels.h"

namespace attendant::kernels::cpu {

// Scratch of DecodeAttention for `heads` tasks at once, in floats.
int64_t DecodeScratchFloats(const AttentionProblem& problem, int64_t heads);

// 1 task, or in fp32 up to kMaxDecodeHeads of adjacent KV heads, which differ
// in nothing else but `partial`, each of at most kMaxDecodeRows rows. Bits do
// not depend on which heads come together. `scratch` is aligned to 64 bytes.
void DecodeAttention(const SimdKernels& simd,
                     std::span<const AttentionTask> tasks, float* scratch);

}  // namespace attendant::kernels::cpu
