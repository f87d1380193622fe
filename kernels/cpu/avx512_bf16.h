// Both forms for bf16 inputs on AVX-512 BF16, by intrinsics: Highway 1.0.3 has
// no such target. vdpbf16ps does two multiply-adds for each of fp32's.
#pragma once

#include <vector>

#include "kernels/cpu/simd_kernels.h"

namespace attendant::kernels::cpu {

// If this machine has AVX-512 BF16 and `kernels` starts with AVX3: puts a set
// AVX3_BF16 in front, AVX3 with these kernels for bf16 inputs.
void AddAvx512Bf16(std::vector<SimdKernels>* kernels);

// The pieces, where the compiler has them; only to be called on such a machine.
TileKernels Avx512Bf16TileKernels(const TileKernels& avx3);
void Avx512Bf16DecodeScores(const DecodeScoresArgs& args);
bool Avx512Bf16DecodeValues(const DecodeValuesArgs& args);

}  // namespace attendant::kernels::cpu
