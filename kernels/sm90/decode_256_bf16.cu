#include "kernels/sm90/decode_launch.cuh"

namespace attendant::kernels::sm90 {

cudaError_t LaunchDecode256Bf16(const DecodeParams& params,
                                const DecodeLaunch& launch) {
  return LaunchDecode<DecodeFew256, Decode256, Decode256Wide, __nv_bfloat16>(
      params, launch);
}

}  // namespace attendant::kernels::sm90
