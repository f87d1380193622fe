// Both forms for bf16 inputs on AMX: the matrix products by tdpbf16ps, the rest
// as on AVX-512 BF16.
#pragma once

#include <vector>

#include "kernels/cpu/simd_kernels.h"

namespace attendant::kernels::cpu {

inline constexpr char kEmulatedAmx[] = "AMX_EMULATED";

// If `kernels` starts with AVX3_BF16: puts a set AMX in front where the machine
// has it and the kernel lets this process use it, and a set AMX_EMULATED at the
// end, the same code on emulated tiles, for tests.
void AddAmx(std::vector<SimdKernels>* kernels);

// AMX-TILE and AMX-BF16 in the processor, their state saved by the kernel, and
// permission for this process, which is asked for here. Linux only.
bool AmxBf16Available();

// The pieces, where the compiler has them.
TileKernels AmxTileKernels(const TileKernels& avx512_bf16);
TileKernels EmulatedAmxTileKernels(const TileKernels& avx512_bf16);
// The decode form's: head sizes that are no multiple of 32 take vdpbf16ps.
void AmxDecodeScores(const DecodeScoresArgs& args);
bool AmxDecodeValues(const DecodeValuesArgs& args);
void EmulatedAmxDecodeScores(const DecodeScoresArgs& args);
bool EmulatedAmxDecodeValues(const DecodeValuesArgs& args);
// V into panels of tiles, [panel][key / 32][16 dims][32 keys].
bool AmxPackValues(const PackValuesArgs& args);

}  // namespace attendant::kernels::cpu
