// Flags and files -> AttendArgs.
#pragma once

#include <list>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/attend_args.h"
#include "client/cpp/cli/flags.h"
#include "client/cpp/formats/file_tensor.h"

namespace attendant::client::cli {

std::span<const FlagSpec> RequestFlags();

// A request, and the memory its views point into. Move-only.
struct Request {
  AttendArgs args;
  std::list<formats::FileTensor> tensors;

  Request() = default;
  Request(Request&&) = default;
  Request& operator=(Request&&) = default;
};

// Tensors come from positional files, by the names q, k, v, qkv, mask,
// alibi_slopes, sinks, cu_seqlens_q, ... (see the flags' help); --q=FILE[:NAME]
// and so on name one each. Or random normal ones of --random's shape.
// INVALID_ARGUMENT names flag or file.
absl::StatusOr<Request> ReadRequest(const Flags& flags);

}  // namespace attendant::client::cli
