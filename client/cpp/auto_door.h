// The door that chooses for every call, as door_chooser.h says.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/door.h"

namespace attendant::client {

// Asks the server what it shares at the first call that it answers; nothing is
// opened before it is needed. AttendResult::door names the door that was taken.
// Tensors in GPU memory go by "ipc" or not at all (UNIMPLEMENTED or
// FAILED_PRECONDITION): no other door can read them. If shared memory cannot be
// used, which is tried once, messages carry what it would have. What is opened
// is waited for no longer than the call has time; shared memory half of that
// and half a second at most, then messages carry this call and those of the
// next ten seconds.
absl::StatusOr<std::unique_ptr<Door>> OpenAutoDoor(
    const std::string& target, const ClientOptions& options);

}  // namespace attendant::client
