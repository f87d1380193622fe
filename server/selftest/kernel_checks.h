// Every kernel that the device has against the oracle: each tile class, phase
// and option once.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "attendant/v1/attention.pb.h"
#include "server/engine/attention_engine.h"
#include "server/request/bounds.h"

namespace attendant::server {

// One request of the small set, with what it asks for in words.
struct KernelCase {
  std::string name;
  v1::AttendRequest request;
};
// Head sizes of every tile class and beside them, prefill, several rows and
// one row, full and causal; then every option of the contract.
std::vector<KernelCase> KernelCases(v1::DataType dtype);

// Rows of the capability table for the engine's device.
std::vector<std::string> KernelsOf(const AttentionEngine& engine);

// Computes all cases of all types that `kernel` serves through the engine and
// checks them: how many, and the worst error over what is allowed. INTERNAL
// naming the case, the row and both numbers.
absl::StatusOr<std::string> CheckKernel(AttentionEngine& engine,
                                        const Bounds& bounds,
                                        const std::string& kernel);

}  // namespace attendant::server
