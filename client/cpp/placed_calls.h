// Calls whose tensors are copied to where the server reaches them, and whose
// answers are copied back: what a door of one machine does for tensors that lie
// elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/attend_args.h"
#include "client/cpp/door_memory.h"

namespace attendant::client {

// Thread-safe.
class PlacedCalls {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  using MakeMemory = std::function<absl::StatusOr<std::unique_ptr<DoorMemory>>(
      int64_t bytes, Deadline deadline)>;
  using Call =
      std::function<absl::StatusOr<AttendResult>(const AttendArgs& placed)>;

  explicit PlacedCalls(MakeMemory make) : make_(std::move(make)) {}

  // As Door's. A second `call`, with new memory, follows a NOT_FOUND in memory
  // of an earlier call: the server has forgotten it. DEADLINE_EXCEEDED without
  // a `call` that would begin after `deadline`.
  absl::StatusOr<AttendResult> Attend(const AttendArgs& args, Deadline deadline,
                                      const Call& call);
  absl::StatusOr<AttendArgs> Prepare(const AttendArgs& args);

 private:
  // Memory of an earlier call, if some is large enough.
  absl::StatusOr<std::unique_ptr<DoorMemory>> Take(const AttendArgs& args,
                                                   Deadline deadline,
                                                   bool* is_new);

  const MakeMemory make_;
  std::mutex mutex_;  // guards what follows
  std::vector<std::unique_ptr<DoorMemory>> free_;
  std::vector<std::unique_ptr<DoorMemory>> prepared_;
};

}  // namespace attendant::client
