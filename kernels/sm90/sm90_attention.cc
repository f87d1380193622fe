#include "kernels/sm90/sm90_attention.h"

namespace attendant::kernels::sm90 {

std::string WhyNot(const DeviceProperties&, const AttentionProblem&) {
  return "is not built yet";
}

absl::StatusOr<std::unique_ptr<KernelPlan>> Plan(
    const DeviceProperties&, std::span<const AttentionProblem* const>) {
  return absl::UnimplementedError("sm90");
}

}  // namespace attendant::kernels::sm90
