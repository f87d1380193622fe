#include "kernels/cpu/avx512_bf16.h"

#include <cstring>

namespace attendant::kernels::cpu {

#ifdef ATTENDANT_AVX512_BF16
void AddAvx512Bf16(std::vector<SimdKernels>* kernels) {
  if (std::strcmp(kernels->front().name, "AVX3") != 0 ||
      !__builtin_cpu_supports("avx512bf16")) {
    return;
  }
  SimdKernels bf16 = kernels->front();
  bf16.name = "AVX3_BF16";
  bf16.tile_bf16 = Avx512Bf16TileKernels(bf16.tile_fp32);
  bf16.decode_bf16.scores = Avx512Bf16DecodeScores;
  bf16.decode_bf16.values = Avx512Bf16DecodeValues;
  kernels->insert(kernels->begin(), bf16);
}
#else
void AddAvx512Bf16(std::vector<SimdKernels>*) {}
#endif

}  // namespace attendant::kernels::cpu
