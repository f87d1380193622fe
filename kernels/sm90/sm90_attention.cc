#include "kernels/sm90/sm90_attention.h"

#include "absl/strings/str_cat.h"
#include "kernels/sm90/kernel_params.h"
#include "kernels/sm90/sm90_plan.h"
#include "kernels/sm90/tensor_map.h"
#include "kernels/sm90/work_list.h"

namespace attendant::kernels::sm90 {

std::string WhyNot(const DeviceProperties&, const AttentionProblem& problem) {
  const ProblemExtents extents = ExtentsOf(problem);
  if (extents.q.rows > kMaxPosition || extents.k.rows > kMaxPosition) {
    return absl::StrCat("serves positions up to ", kMaxPosition);
  }
  std::string why = WhyNoMap("q", problem.q, extents.q);
  if (why.empty()) why = WhyNoMap("k", problem.k, extents.k);
  if (why.empty()) why = WhyNoMap("v", problem.v, extents.v);
  return why;
}

absl::StatusOr<std::unique_ptr<KernelPlan>> Plan(
    const DeviceProperties& device,
    std::span<const AttentionProblem* const> problems) {
  return Sm90Plan::Create(device, problems);
}

}  // namespace attendant::kernels::sm90
