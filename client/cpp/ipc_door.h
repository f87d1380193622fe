// The door for callers on the server's GPU: tensors stay in GPU memory, and
// only the call itself is a message.
//
// Tensors, out and lse are recognised by their addresses. What lies in GPU
// memory is exported once and named from then on (cuda/registrations.h); what
// lies in the host's travels in the message. If nothing lies in GPU memory, the
// door copies the tensors there and the answer back, as door "shm" does.
//
// Order: a call waits for AttendArgs::cuda_stream, if it is set; else the
// caller has synchronised. When Attend returns, the answer is in out and lse:
// streams may be given work that reads it.
//
// Lifetime: allocations stay open at the server until the door is closed, 64
// others were used, or the server's region_idle_seconds have passed. Their
// memory is given back to the GPU no sooner.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/cuda/driver.h"
#include "client/cpp/door.h"

namespace attendant::client {

// UNIMPLEMENTED, saying why, if the server takes no memory of the GPU or this
// machine has no GPU that both see. Errors of its Attend, beside Client's:
// FAILED_PRECONDITION for memory that cannot be exported (stream-ordered pools,
// managed memory, PyTorch's expandable segments); INVALID_ARGUMENT for a tensor
// that does not lie at a multiple of 256 bytes of its allocation.
absl::StatusOr<std::unique_ptr<Door>> OpenIpcDoor(const std::string& target,
                                                  const ClientOptions& options);

// The same, waiting for nothing beyond `deadline`.
absl::StatusOr<std::unique_ptr<Door>> OpenIpcDoorBy(
    std::chrono::steady_clock::time_point deadline, const std::string& target,
    const ClientOptions& options);

// The same with a driver of the caller's, which outlives the door.
absl::StatusOr<std::unique_ptr<Door>> OpenIpcDoorWith(
    const std::string& target, const ClientOptions& options,
    const cuda::Driver& driver);

// True if q, k, v, qkv, out or lse lies in GPU memory; false without a driver.
bool HasDeviceTensors(const AttendArgs& args);

}  // namespace attendant::client
