// How a caller's view travels: which bytes of his memory, in which order, and
// what the wire then says of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/tensor.h"

namespace attendant::client {

struct TensorBytes {
  // Pieces of the caller's memory (or of `packed`), in wire order.
  std::vector<std::span<const std::byte>> pieces;
  int64_t num_bytes = 0;
  // For TensorSpec.strides; empty = contiguous.
  std::vector<int64_t> strides;
  // Holds the bytes of views whose runs are too short to be sent one by one.
  std::vector<std::byte> packed;
};

// Dense views and permutations of one go as they lie. Views with gaps are
// gathered into row-major order (repeated dimensions, stride 0, are sent once):
// bytes between the named elements are the caller's and do not travel. Errors:
// INVALID_ARGUMENT for null data, a negative or an innermost stride that is
// not 1, a wrong number of strides, as "<field>...".
absl::StatusOr<TensorBytes> BytesOf(const std::string& field,
                                    const TensorView& tensor);

}  // namespace attendant::client
