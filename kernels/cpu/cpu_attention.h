// The CPU backend's row of the capability table: tiled online softmax on
// Highway, every feature of kernels/problem.h. Start reading here, then
// README.md of this folder.
#pragma once

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "kernels/attention.h"

namespace attendant::kernels::cpu {

// Launch of the plan is synchronous, on context.thread_pool (null: on the
// caller alone) and context.workspace; it may run at the same time as other
// launches on the same pool. Errors of Launch: INVALID_ARGUMENT if the pool has
// more threads than device.num_sms, or if the workspace is missing.
absl::StatusOr<std::unique_ptr<KernelPlan>> Plan(
    const DeviceProperties& device,
    std::span<const AttentionProblem* const> problems);

}  // namespace attendant::kernels::cpu
