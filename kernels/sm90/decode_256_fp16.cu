#include "kernels/sm90/decode_launch.cuh"

namespace attendant::kernels::sm90 {

cudaError_t LaunchDecode256Fp16(const DecodeParams& params, bool wide,
                                int combine_strands, cudaStream_t stream) {
  return LaunchDecode<Decode256, Decode256Wide, __half>(
      params, wide, combine_strands, stream);
}

}  // namespace attendant::kernels::sm90
