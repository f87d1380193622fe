#include "kernels/sm80/forward.cuh"
#include "kernels/sm80/launchers.h"

namespace attendant::kernels::sm80 {

absl::Status LaunchForwardFp16Plain(int head_class, int64_t num_tiles,
                                    int64_t shared_bytes,
                                    const LaunchArgs& args,
                                    cudaStream_t stream) {
  return LaunchForwardOfClass<__half, false>(head_class, num_tiles,
                                             shared_bytes, args, stream);
}

}  // namespace attendant::kernels::sm80
