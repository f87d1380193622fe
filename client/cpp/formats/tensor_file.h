// Tensors from and to files, by the name's ending: .npy, .npz, .safetensors.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/formats/file_tensor.h"

namespace attendant::client::formats {

// A .npy file gives one tensor without a name. Errors, with the file's name:
// NOT_FOUND, INVALID_ARGUMENT (unknown ending, malformed), UNKNOWN (I/O).
absl::StatusOr<std::vector<FileTensor>> ReadTensorFile(const std::string& path);

// A .npy file takes exactly one tensor. Errors as above.
absl::Status WriteTensorFile(const std::string& path,
                             const std::vector<FileTensor>& tensors);

}  // namespace attendant::client::formats
