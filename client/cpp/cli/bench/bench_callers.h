// Who makes the calls of one row, and with what memory: bench_case.h's
// CallKind.
#pragma once

#include <chrono>
#include <memory>
#include <random>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/attend_args.h"
#include "client/cpp/cli/bench/bench_case.h"
#include "client/cpp/cli/bench/bench_shape.h"
#include "client/cpp/door.h"

namespace attendant::client::cli {

struct Answer {
  Tensor out, lse;
};

// A door, and for each caller and shape a request; prepared calls' lie in the
// door's own memory.
struct Callers {
  std::unique_ptr<Door> door;
  std::vector<BenchRequest> inputs;           // one a shape
  std::vector<BenchRequest> outputs;          // one a caller; none for kNew
  std::vector<std::vector<AttendArgs>> args;  // [caller][shape]
  std::vector<Answer> last;                   // one a caller; kNew's
  std::vector<std::mt19937> random;           // one a caller
};

// As many callers as `one` has. Errors as Door::Prepare and MakeBenchRequest.
absl::StatusOr<Callers> MakeCallers(const BenchCase& one,
                                    std::unique_ptr<Door> door);

// One call of a shape at random. Its bytes are those of the tensors, however
// the door moves them, also where a server counts only what came in the
// message. Each caller is one thread's at a time.
absl::StatusOr<AttendResult> CallOnce(CallKind call, int caller,
                                      std::chrono::nanoseconds timeout,
                                      Callers* callers);

// `args` whose answer comes in memory of its own.
AttendArgs WithoutAnswer(AttendArgs args);

}  // namespace attendant::client::cli
