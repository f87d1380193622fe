#include "client/cpp/formats/file_tensor.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace attendant::client::formats {

int64_t SizeOf(ElementType type) {
  switch (type) {
    case ElementType::kBool:
    case ElementType::kUint8:
      return 1;
    case ElementType::kFloat16:
    case ElementType::kBFloat16:
    case ElementType::kUint16:
    case ElementType::kOpaque16:
      return 2;
    case ElementType::kFloat32:
    case ElementType::kInt32:
      return 4;
    case ElementType::kFloat64:
    case ElementType::kInt64:
      return 8;
  }
  return 1;
}

const char* Name(ElementType type) {
  switch (type) {
    case ElementType::kFloat16:
      return "float16";
    case ElementType::kFloat32:
      return "float32";
    case ElementType::kFloat64:
      return "float64";
    case ElementType::kBFloat16:
      return "bfloat16";
    case ElementType::kBool:
      return "bool";
    case ElementType::kUint8:
      return "uint8";
    case ElementType::kUint16:
      return "uint16";
    case ElementType::kInt32:
      return "int32";
    case ElementType::kInt64:
      return "int64";
    case ElementType::kOpaque16:
      return "2 opaque bytes";
  }
  return "?";
}

absl::StatusOr<int64_t> CheckedBytes(ElementType type,
                                     const std::vector<int64_t>& shape) {
  constexpr int64_t kMaxBytes = int64_t{1} << 60;
  int64_t bytes = SizeOf(type);
  bool empty = false;
  for (const int64_t size : shape) {
    if (size < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("a size of the shape is ", size, ", must be >= 0"));
    }
    if (size == 0) {
      empty = true;
    } else if (bytes > kMaxBytes / size) {
      return absl::InvalidArgumentError("the shape has over 2^60 bytes");
    } else {
      bytes *= size;
    }
  }
  return empty ? 0 : bytes;
}

}  // namespace attendant::client::formats
