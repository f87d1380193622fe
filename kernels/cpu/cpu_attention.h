// The CPU backend's row of the capability table.
#pragma once

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "kernels/attention.h"

namespace attendant::kernels::cpu {

absl::StatusOr<std::unique_ptr<KernelPlan>> Plan(
    const DeviceProperties& device,
    std::span<const AttentionProblem* const> problems);

}  // namespace attendant::kernels::cpu
