// Random normal q, k, v for a check without files.
#pragma once

#include "absl/status/status.h"
#include "client/cpp/cli/flags.h"
#include "client/cpp/cli/request_flags.h"
#include "client/cpp/tensor.h"

namespace attendant::client::cli {

// Of --random=B,SQ,SK,HQ,HKV,D[,DV] in the request's layout (THD: B sequences
// of equal lengths), the same for the same --seed. dtype unset = fp32.
absl::Status MakeRandomTensors(const Flags& flags, DataType dtype,
                               Request* request);

}  // namespace attendant::client::cli
