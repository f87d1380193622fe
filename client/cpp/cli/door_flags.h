// The flag that says how tensors travel.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/attend_args.h"
#include "client/cpp/cli/flags.h"
#include "client/cpp/door.h"

namespace attendant::client::cli {

std::span<const FlagSpec> DoorFlags();  // --door

// INVALID_ARGUMENT, naming --door, for what is neither "auto" nor a door.
absl::Status CheckDoorName(const std::string& name);

// `name`, or for "auto" the best door of this build for so many bytes.
std::string ResolveDoor(const std::string& name, const std::string& target,
                        const ClientOptions& options, int64_t request_bytes);

// Bytes of q, k and v (or qkv) of a request.
int64_t TensorBytesOf(const AttendArgs& args);

}  // namespace attendant::client::cli
