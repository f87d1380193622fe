// The sm80 kernel's row of the capability table.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/attention.h"

namespace attendant::kernels::sm80 {

std::string WhyNot(const DeviceProperties& device,
                   const AttentionProblem& problem);

absl::StatusOr<std::unique_ptr<KernelPlan>> Plan(
    const DeviceProperties& device,
    std::span<const AttentionProblem* const> problems);

}  // namespace attendant::kernels::sm80
