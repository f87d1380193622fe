// The tile form on AVX-512 BF16 (vdpbf16ps): twice the multiply-adds of fp32.
#pragma once

#include <vector>

#include "kernels/cpu/simd_kernels.h"

namespace attendant::kernels::cpu {

// If this machine has AVX-512 BF16 and `kernels` starts with AVX3: puts a set
// AVX3_BF16 in front, AVX3 with this file's kernels for bf16 inputs.
void AddAvx512Bf16(std::vector<SimdKernels>* kernels);

}  // namespace attendant::kernels::cpu
