// Attention of one task in the tile form (see simd_kernels.h).
#pragma once

#include <cstdint>

#include "kernels/cpu/row_output.h"
#include "kernels/cpu/simd_kernels.h"

namespace attendant::kernels::cpu {

// Scratch of TileAttention for tasks of up to `rows_per_task` rows, in floats,
// whatever the instruction set.
int64_t TileScratchFloats(const AttentionProblem& problem,
                          int64_t rows_per_task);

// `scratch` is aligned to 64 bytes.
void TileAttention(const SimdKernels& simd, const AttentionTask& task,
                   int64_t rows_per_task, float* scratch);

}  // namespace attendant::kernels::cpu
