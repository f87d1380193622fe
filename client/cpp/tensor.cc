#include "client/cpp/tensor.h"

#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/client_error.h"

namespace attendant::client {
namespace {

// Their bytes, and bits rounded up to bytes of their own, stay within 64 bits.
constexpr int64_t kMaxElements = int64_t{1} << 58;

constexpr int64_t kHugePagesFrom = int64_t{4} << 20;

int64_t RoundUpToByte(int64_t entries) { return (entries + 7) / 8 * 8; }

}  // namespace

const char* Name(DataType dtype) {
  switch (dtype) {
    case DataType::kUnset:
      return "unset";
    case DataType::kFloat32:
      return "fp32";
    case DataType::kFloat16:
      return "fp16";
    case DataType::kBFloat16:
      return "bf16";
    case DataType::kBool:
      return "bool";
    case DataType::kBoolBits:
      return "bool_bits";
  }
  return "?";
}

const char* Name(Layout layout) {
  switch (layout) {
    case Layout::kUnset:
      return "unset";
    case Layout::kBSHD:
      return "BSHD";
    case Layout::kBHSD:
      return "BHSD";
    case Layout::kTHD:
      return "THD";
  }
  return "?";
}

absl::StatusOr<int64_t> NumElements(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  bool empty = false;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] < 0) {
      return InvalidField(absl::StrCat("shape[", d, "]"),
                          absl::StrCat(shape[d]), ">= 0");
    }
    if (shape[d] == 0) {
      empty = true;
    } else if (elements > kMaxElements / shape[d]) {
      return InvalidField("shape", absl::StrCat("over 2^58 elements"),
                          "at most 2^58 elements");
    } else {
      elements *= shape[d];
    }
  }
  return empty ? 0 : elements;
}

int64_t NumBytes(DataType dtype, int64_t elements) {
  switch (dtype) {
    case DataType::kFloat32:
      return elements * 4;
    case DataType::kFloat16:
    case DataType::kBFloat16:
      return elements * 2;
    case DataType::kBoolBits:
      return RoundUpToByte(elements) / 8;
    case DataType::kBool:
    case DataType::kUnset:
      break;
  }
  return elements;
}

std::vector<int64_t> ContiguousStrides(DataType dtype,
                                       const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= shape[d];
    if (dtype == DataType::kBoolBits && d + 1 == shape.size()) {
      stride = RoundUpToByte(stride);
    }
  }
  return strides;
}

std::unique_ptr<std::byte[]> NewTensorMemory(int64_t bytes) {
  auto memory =
      std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes));
  if (bytes < kHugePagesFrom) return memory;
  // Whole pages within. Advice: what the system makes of it is its affair.
  const auto begin = reinterpret_cast<uintptr_t>(memory.get());
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t last = (begin + static_cast<uintptr_t>(bytes)) / page * page;
  madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
  return memory;
}

absl::StatusOr<Tensor> AllocateTensor(DataType dtype,
                                      std::vector<int64_t> shape) {
  const absl::StatusOr<int64_t> elements = NumElements(shape);
  if (!elements.ok()) return elements.status();
  Tensor tensor;
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  tensor.num_bytes = NumBytes(dtype, *elements);
  tensor.storage = NewTensorMemory(tensor.num_bytes);
  tensor.data = tensor.storage.get();
  return tensor;
}

}  // namespace attendant::client
