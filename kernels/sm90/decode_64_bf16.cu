#include "kernels/sm90/decode_launch.cuh"

namespace attendant::kernels::sm90 {

cudaError_t LaunchDecode64Bf16(const DecodeParams& params, bool wide,
                               int combine_strands, cudaStream_t stream) {
  return LaunchDecode<Decode64, Decode64Wide, __nv_bfloat16>(
      params, wide, combine_strands, stream);
}

}  // namespace attendant::kernels::sm90
