// One request straight through an engine, without gRPC.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "attendant/v1/attention.pb.h"
#include "kernels/problem.h"
#include "server/engine/attention_engine.h"
#include "server/request/bounds.h"

namespace attendant::server {

struct DirectAnswer {
  std::shared_ptr<AttentionJob> job;  // with its output block
  JobResult result;
  std::vector<std::byte> input;  // a copy of the input block
  // In host memory: `input` and the output block.
  kernels::AttentionProblem problem;

  // O and LSE as a reply would carry them.
  std::string output_data() const;
  std::string lse_data() const;
};

// What a selftest waits for one answer at most.
inline constexpr std::chrono::seconds kSelftestPatience{20};

// `only_kernel`: a row of the capability table; empty = the engine's choice.
// Errors: those of parsing, validation, admission and computation;
// UNIMPLEMENTED if the device or the kernel does not serve the request.
absl::StatusOr<DirectAnswer> CallEngine(AttentionEngine& engine,
                                        const Bounds& bounds,
                                        const v1::AttendRequest& request,
                                        std::string_view only_kernel = {});

}  // namespace attendant::server
