#include "kernels/sm80/sm80_attention.h"

namespace attendant::kernels::sm80 {

std::string WhyNot(const DeviceProperties&, const AttentionProblem&) {
  return "is not built yet";
}

absl::StatusOr<std::unique_ptr<KernelPlan>> Plan(
    const DeviceProperties&, std::span<const AttentionProblem* const>) {
  return absl::UnimplementedError("sm80");
}

}  // namespace attendant::kernels::sm80
