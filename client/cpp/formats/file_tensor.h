// A tensor as a file holds it: name, element type, shape, little-endian bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace attendant::client::formats {

enum class ElementType {
  kFloat16,
  kFloat32,
  kFloat64,
  kBFloat16,
  kBool,
  kUint8,
  kUint16,
  kInt32,
  kInt64,
  kOpaque16,  // numpy's |V2: what np.save makes of an ml_dtypes.bfloat16 array
};

struct FileTensor {
  std::string name;  // .npy files have none
  ElementType type = ElementType::kFloat32;
  std::vector<int64_t> shape;    // row-major
  std::vector<std::byte> bytes;  // exactly what type and shape say
};

int64_t SizeOf(ElementType type);
const char* Name(ElementType type);  // numpy's name: "float16", "bool", ...

// Bytes of such a tensor. INVALID_ARGUMENT for a negative size or more than
// 2^60 bytes.
absl::StatusOr<int64_t> CheckedBytes(ElementType type,
                                     const std::vector<int64_t>& shape);

}  // namespace attendant::client::formats
