// A request as the oracle reads it. Written from the contract alone, not from
// the server's code: what both misread alike would go unseen.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/attend_args.h"
#include "kernels/problem.h"

namespace attendant::client::cli {

struct ReferenceProblem {
  kernels::AttentionProblem problem;  // out and lse are not set
  // Inputs converted to the compute dtype, if that is another one.
  std::vector<std::unique_ptr<std::byte[]>> converted;
};

// For a request that the server has answered, with contiguous tensors.
// `compute_dtype` is the one the answer names. The result refers to the memory
// of `args`. INVALID_ARGUMENT for a request that is none (a server that
// answered it is at fault).
absl::StatusOr<ReferenceProblem> MakeReferenceProblem(const AttendArgs& args,
                                                      DataType compute_dtype);

}  // namespace attendant::client::cli
