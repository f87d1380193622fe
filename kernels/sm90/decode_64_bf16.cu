#include "kernels/sm90/decode_launch.cuh"

namespace attendant::kernels::sm90 {

cudaError_t LaunchDecode64Bf16(const DecodeParams& params,
                               const DecodeLaunch& launch) {
  return LaunchDecode<DecodeFew64, Decode64, Decode64Wide, __nv_bfloat16>(
      params, launch);
}

}  // namespace attendant::kernels::sm90
