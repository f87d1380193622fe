// Flags of `attendant bench` -> the cases it measures.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/cli/bench/bench_shape.h"
#include "client/cpp/cli/bench/load_runner.h"
#include "client/cpp/cli/flags.h"

namespace attendant::client::cli {

std::span<const FlagSpec> BenchFlags();

// How a caller makes its calls.
enum class CallKind {
  kPrepared,  // states them once, by Door::Prepare; answers into one memory
  kOut,       // states each anew; answers into one memory of the caller's
  kNew,       // states each anew; answers in memory of their own
};
const char* Name(CallKind call);  // "prepared", "out", "new"

// One row of the result.
struct BenchCase {
  std::string door;
  int connections = 1;
  std::vector<BenchShape> shapes;  // one, or several drawn at random (--mix)
  BenchOptions options;
  CallKind call = CallKind::kPrepared;
  LoadPlan plan;
  int64_t warmup_calls = 0;  // of each caller, closed loop, not counted
};
// "unary, 1 connection, s128h16d128, 4 callers" for people.
std::string ShapesText(const BenchCase& one);
std::string CaseText(const BenchCase& one);

// Doors x connections x shapes x (rates or concurrencies), the last fastest.
// INVALID_ARGUMENT names the flag.
absl::StatusOr<std::vector<BenchCase>> ReadBenchCases(const Flags& flags);

}  // namespace attendant::client::cli
