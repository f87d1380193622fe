// Tensor files -> the views and lists of a request.
#pragma once

#include "absl/status/status.h"
#include "client/cpp/cli/flags.h"
#include "client/cpp/cli/request_flags.h"
#include "client/cpp/tensor.h"

namespace attendant::client::cli {

// Reads the positional files and --q, --k, --v, --qkv, --mask. `integers_hold`
// is what 16-bit integers or opaque bytes stand for (bf16), unset = refused.
absl::Status ReadTensors(const Flags& flags, DataType integers_hold,
                         Request* request);

// Replaces a boolean mask of bytes by one of bits.
absl::Status PackMaskBits(Request* request);

}  // namespace attendant::client::cli
