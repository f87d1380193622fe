#include "kernels/sm90/prefill_launch.cuh"

namespace attendant::kernels::sm90 {

cudaError_t LaunchPrefill192x128Fp16(const PrefillParams& params,
                                     bool score_mod, int num_blocks,
                                     cudaStream_t stream) {
  return LaunchPrefill<Tile192x128, Tile192x128, __half>(params, score_mod,
                                                         num_blocks, stream);
}

}  // namespace attendant::kernels::sm90
