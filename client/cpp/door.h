// The roads a call can take to one server. Same arguments, same answer, bit for
// bit; they differ in how the tensors travel.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/attend_args.h"
#include "client/cpp/attendant_client.h"

namespace attendant::client {

// ClientOptions::busy_poll of the doors of one machine, where even a large call
// takes not much longer than waking up.
inline constexpr std::chrono::microseconds kSameHostBusyPoll{6000};

struct DoorCapabilities {
  // Caller and server share a machine's memory.
  bool same_host_only = false;
  // Takes and gives tensors in GPU memory.
  bool device_tensors = false;
  // O may arrive while inputs are still on their way.
  bool overlaps = false;
  // Largest request; 0 = the server's bound alone.
  int64_t max_request_bytes = 0;
};

// Thread-safe: any number of threads may call at once.
class Door {
 public:
  virtual ~Door() = default;

  virtual const std::string& name() const = 0;
  virtual DoorCapabilities capabilities() const = 0;

  // As Client::Attend.
  virtual absl::StatusOr<AttendResult> Attend(
      const AttendArgs& args, std::chrono::nanoseconds timeout,
      std::stop_token stop = {}) const = 0;

  // For a caller that sends the same memory often: `args` with its tensors (and
  // out and lse) where this door moves them from without a copy. They hold what
  // `args` held, belong to the door and live as long as it. Here: `args`.
  virtual absl::StatusOr<AttendArgs> Prepare(const AttendArgs& args) {
    return args;
  }

  // A tensor of one of this door's answers, which may lie in GPU memory
  // (Tensor::cuda_device): its bytes into host memory.
  virtual absl::Status CopyToHost(const Tensor& tensor, std::byte* to) const;
};

struct DoorRow {
  const char* name;
  const char* what;  // one line for people
};
// Every door by name, also those that this build does not have.
std::span<const DoorRow> DoorRows();
// Names of those that it has.
std::vector<std::string> DoorsOfThisBuild();

// "auto" opens a door that chooses for every call (auto_door.h).
// Errors: INVALID_ARGUMENT for a name that DoorRows has not; UNIMPLEMENTED for
// a door that this build has not; else as Client::Create.
absl::StatusOr<std::unique_ptr<Door>> OpenDoor(const std::string& name,
                                               const std::string& target,
                                               const ClientOptions& options);

}  // namespace attendant::client
