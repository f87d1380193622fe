// Which tensors of a call lie in memory that the server reaches too.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "client/cpp/attend_args.h"

namespace attendant::client {

struct SharedPart {
  const SharedRange* range = nullptr;
  int64_t offset = 0;
  int64_t bytes = 0;
};

// Where [data, data + bytes) lies, if whole in one range and where the server
// takes it from; else it has to travel.
std::optional<SharedPart> FindShared(const std::vector<SharedRange>& ranges,
                                     const void* data, int64_t bytes);

// Bytes from the first to the last element of a view, as its strides say; -1
// for a view that makes no sense.
int64_t SpanBytes(const TensorView& view);

}  // namespace attendant::client
