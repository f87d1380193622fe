// numpy's .npy files, versions 1 to 3.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/formats/file_tensor.h"

namespace attendant::client::formats {

// INVALID_ARGUMENT for anything that is not exactly one little-endian, C-order
// array of a type of ElementType.
absl::StatusOr<FileTensor> ParseNpy(std::span<const std::byte> file);

// Version 1.0, data aligned to 64 bytes. INVALID_ARGUMENT for bf16, which numpy
// does not have.
absl::StatusOr<std::vector<std::byte>> FormatNpy(const FileTensor& tensor);

}  // namespace attendant::client::formats
