#include "kernels/sm90/prefill_launch.cuh"

namespace attendant::kernels::sm90 {

cudaError_t LaunchPrefill64Bf16(const PrefillParams& params, bool score_mod,
                                int num_blocks, cudaStream_t stream) {
  return LaunchPrefill<Tile64, Tile64ScoreMod, __nv_bfloat16>(
      params, score_mod, num_blocks, stream);
}

}  // namespace attendant::kernels::sm90
