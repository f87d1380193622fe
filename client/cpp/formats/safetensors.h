// .safetensors files: an 8-byte length, a JSON header, the tensors' bytes.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/formats/file_tensor.h"

namespace attendant::client::formats {

// In the order of their bytes. INVALID_ARGUMENT for anything malformed: a
// header over 100 MB, unknown types, names twice, sizes that do not match their
// bytes, holes or overlaps.
absl::StatusOr<std::vector<FileTensor>> ParseSafetensors(
    std::span<const std::byte> file);

// INVALID_ARGUMENT for types the format lacks (opaque ones).
absl::StatusOr<std::vector<std::byte>> FormatSafetensors(
    const std::vector<FileTensor>& tensors);

}  // namespace attendant::client::formats
