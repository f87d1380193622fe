#include "kernels/attention.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace attendant::kernels {
namespace {

constexpr int64_t kAlignment = 256;

int64_t AlignUp(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

void* Offset(void* base, int64_t bytes) {
  return base == nullptr ? nullptr : static_cast<std::byte*>(base) + bytes;
}

absl::string_view View(std::string_view text) {
  return absl::string_view(text.data(), text.size());
}

// Empty if the kernel serves the problem on the device, else why not.
std::string WhyNot(const KernelEntry& kernel, const DeviceProperties& device,
                   const AttentionProblem& problem) {
  const Capability& row = kernel.capability;
  if (device.compute_capability < row.min_compute_capability ||
      device.compute_capability > row.max_compute_capability) {
    return absl::StrCat("needs compute capability ", row.min_compute_capability,
                        "..", row.max_compute_capability);
  }
  const bool dtype_served = (problem.dtype == DataType::kFloat32 && row.fp32) ||
                            (problem.dtype == DataType::kFloat16 && row.fp16) ||
                            (problem.dtype == DataType::kBFloat16 && row.bf16);
  if (!dtype_served) {
    return absl::StrCat("does not compute in ", Name(problem.dtype));
  }
  if (std::max(problem.head_dim, problem.head_dim_v) > row.max_head_dim) {
    return absl::StrCat("serves head_dim up to ", row.max_head_dim);
  }
  const MaskKind mask = problem.mask.kind;
  if (mask == MaskKind::kAdditive && !row.additive_mask) {
    return "has no additive mask";
  }
  if (mask != MaskKind::kNone && mask != MaskKind::kAdditive &&
      !row.boolean_mask) {
    return "has no boolean mask";
  }
  if (!problem.alibi_slopes.empty() && !row.alibi) return "has no ALiBi";
  if (problem.softcap > 0 && !row.softcap) return "has no softcap";
  if (!problem.sinks.empty() && !row.sinks) return "has no sinks";
  if ((problem.window_left != kWindowOpen ||
       problem.window_right != kWindowOpen) &&
      !row.window) {
    return "has no window";
  }
  return kernel.why_not == nullptr ? std::string()
                                   : kernel.why_not(device, problem);
}

absl::StatusOr<const KernelEntry*> FindKernelNamed(
    const DeviceProperties& device, const AttentionProblem& problem,
    std::string_view only_kernel) {
  std::string reasons;
  for (const KernelEntry& kernel : Kernels()) {
    if (!only_kernel.empty() && kernel.capability.kernel != only_kernel) {
      continue;
    }
    const std::string why_not = WhyNot(kernel, device, problem);
    if (why_not.empty()) return &kernel;
    absl::StrAppend(&reasons, reasons.empty() ? "" : "; ",
                    View(kernel.capability.kernel), " ", why_not);
  }
  return absl::UnimplementedError(
      absl::StrCat("no kernel serves this problem: ", reasons));
}

absl::StatusOr<const KernelEntry*> ChooseKernel(const DeviceProperties& device,
                                                const AttentionProblem& problem,
                                                std::string_view only_kernel) {
  if (only_kernel.empty() && !problem.kernel.empty()) {
    auto chosen = FindKernelNamed(device, problem, problem.kernel);
    if (chosen.ok()) return chosen;
  }
  return FindKernelNamed(device, problem, only_kernel);
}

}  // namespace

absl::StatusOr<const KernelEntry*> FindKernel(const DeviceProperties& device,
                                              const AttentionProblem& problem) {
  return FindKernelNamed(device, problem, {});
}

absl::StatusOr<AttentionPlan> PlanAttention(
    const DeviceProperties& device, std::span<const AttentionProblem> problems,
    std::string_view only_kernel) {
  AttentionPlan plan;
  std::vector<std::vector<const AttentionProblem*>> members;
  for (const AttentionProblem& problem : problems) {
    ASSIGN_OR_RETURN(const KernelEntry* kernel,
                     ChooseKernel(device, problem, only_kernel));
    size_t part = 0;
    while (part < plan.parts_.size() && plan.parts_[part].kernel != kernel) {
      ++part;
    }
    if (part == plan.parts_.size()) {
      plan.parts_.emplace_back().kernel = kernel;
      members.emplace_back();
    }
    plan.places_.push_back({part, members[part].size()});
    members[part].push_back(&problem);
  }
  for (size_t i = 0; i < plan.parts_.size(); ++i) {
    AttentionPlan::Part& part = plan.parts_[i];
    ASSIGN_OR_RETURN(part.plan, part.kernel->plan(device, members[i]));
    part.workspace_offset = plan.workspace_bytes_;
    part.control_offset = plan.control_bytes_;
    part.descriptor_offset = plan.descriptor_bytes_;
    plan.workspace_bytes_ += AlignUp(part.plan->workspace_bytes());
    plan.control_bytes_ += AlignUp(part.plan->control_bytes());
    plan.descriptor_bytes_ += AlignUp(part.plan->descriptor_bytes());
    if (part.plan->repair_flag_offset() >= 0) {
      plan.repair_flag_offsets_.push_back(part.control_offset +
                                          part.plan->repair_flag_offset());
    }
  }
  return plan;
}

std::string_view AttentionPlan::kernel_name(size_t index) const {
  return parts_[places_[index].part].kernel->capability.kernel;
}

int64_t AttentionPlan::workspace_bytes_of(size_t index) const {
  const Place& place = places_[index];
  return parts_[place.part].plan->workspace_bytes_of(place.index);
}

LaunchContext AttentionPlan::ContextOf(const Part& part,
                                       const LaunchContext& whole) const {
  LaunchContext context = whole;
  context.workspace = Offset(whole.workspace, part.workspace_offset);
  context.control = Offset(whole.control, part.control_offset);
  context.host_descriptors =
      Offset(whole.host_descriptors, part.descriptor_offset);
  context.device_descriptors =
      Offset(whole.device_descriptors, part.descriptor_offset);
  return context;
}

absl::Status AttentionPlan::Launch(const LaunchContext& context) const {
  for (const Part& part : parts_) {
    RETURN_IF_ERROR(part.plan->Launch(ContextOf(part, context)));
  }
  return absl::OkStatus();
}

absl::Status AttentionPlan::Repair(const LaunchContext& context) const {
  for (const Part& part : parts_) {
    if (part.plan->repair_flag_offset() < 0) continue;
    RETURN_IF_ERROR(part.plan->Repair(ContextOf(part, context)));
  }
  return absl::OkStatus();
}

}  // namespace attendant::kernels
