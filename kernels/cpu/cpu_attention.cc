#include "kernels/cpu/cpu_attention.h"

namespace attendant::kernels::cpu {

absl::StatusOr<std::unique_ptr<KernelPlan>> Plan(
    const DeviceProperties&, std::span<const AttentionProblem* const>) {
  return absl::UnimplementedError("cpu");
}

}  // namespace attendant::kernels::cpu
