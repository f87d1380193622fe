#include "kernels/sm90/decode_launch.cuh"

namespace attendant::kernels::sm90 {

cudaError_t LaunchDecode128Bf16(const DecodeParams& params,
                                const DecodeLaunch& launch) {
  return LaunchDecode<DecodeFew128, Decode128, Decode128Wide, __nv_bfloat16>(
      params, launch);
}

}  // namespace attendant::kernels::sm90
