#include "client/cpp/tensor_bytes.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/client_error.h"

namespace attendant::client {
namespace {

// Below this a slice costs more than the copy of its bytes.
constexpr int64_t kMinPieceBytes = 4096;
constexpr int64_t kMaxExtent = int64_t{1} << 58;

struct Dimension {
  int64_t size;
  int64_t stride;  // bytes
};

absl::Status CheckStrides(const std::string& field, const TensorView& tensor) {
  const std::vector<int64_t>& strides = tensor.strides;
  if (strides.size() != tensor.shape.size()) {
    return InvalidField(field + ".strides", absl::StrCat(strides.size()),
                        absl::StrCat(tensor.shape.size(), " values"));
  }
  int64_t extent = 0;
  for (size_t d = 0; d < strides.size(); ++d) {
    const std::string name = absl::StrCat(field, ".strides[", d, "]");
    if (strides[d] < 0) {
      return InvalidField(name, absl::StrCat(strides[d]), ">= 0");
    }
    const bool innermost = d + 1 == strides.size();
    if (innermost && strides[d] != 1 && tensor.shape[d] > 1) {
      return InvalidField(name, absl::StrCat(strides[d]), "1");
    }
    if (!innermost && tensor.dtype == DataType::kBoolBits &&
        strides[d] % 8 != 0) {
      return InvalidField(name, absl::StrCat(strides[d]), "a multiple of 8");
    }
    const int64_t steps = tensor.shape[d] - 1;
    if (steps > 0 && strides[d] > (kMaxExtent - extent) / steps) {
      return InvalidField(name, absl::StrCat(strides[d]),
                          "within 2^58 elements");
    }
    extent += std::max<int64_t>(steps, 0) * strides[d];
  }
  return absl::OkStatus();
}

// Dimensions outside the innermost row of bytes that really repeat or step.
// `row_bytes` grows while the next dimension continues the run.
std::vector<Dimension> OuterDimensions(const TensorView& tensor,
                                       const std::vector<int64_t>& strides,
                                       int64_t* row_bytes) {
  std::vector<Dimension> outer;
  for (size_t d = 0; d + 1 < tensor.shape.size(); ++d) {
    if (tensor.shape[d] == 1 || strides[d] == 0) continue;
    outer.push_back({tensor.shape[d], NumBytes(tensor.dtype, strides[d])});
  }
  while (!outer.empty() && outer.back().stride == *row_bytes) {
    *row_bytes *= outer.back().size;
    outer.pop_back();
  }
  return outer;
}

// True if the dimensions, in some order, tile one run without gap or overlap.
bool IsDense(std::vector<Dimension> outer, int64_t row_bytes) {
  std::sort(outer.begin(), outer.end(),
            [](const Dimension& a, const Dimension& b) {
              return a.stride < b.stride;
            });
  int64_t run = row_bytes;
  for (const Dimension& dimension : outer) {
    if (dimension.stride != run) return false;
    run *= dimension.size;
  }
  return true;
}

template <typename Visit>
void ForEachRow(const std::vector<Dimension>& outer, size_t depth,
                const std::byte* data, const Visit& visit) {
  if (depth == outer.size()) return visit(data);
  for (int64_t i = 0; i < outer[depth].size; ++i) {
    ForEachRow(outer, depth + 1, data + i * outer[depth].stride, visit);
  }
}

void Gather(const std::vector<Dimension>& outer, int64_t row_bytes,
            const std::byte* data, TensorBytes* bytes) {
  const size_t row = static_cast<size_t>(row_bytes);
  if (row_bytes >= kMinPieceBytes) {
    ForEachRow(outer, 0, data, [&](const std::byte* begin) {
      bytes->pieces.emplace_back(begin, row);
    });
    return;
  }
  bytes->packed.resize(static_cast<size_t>(bytes->num_bytes));
  std::byte* end = bytes->packed.data();
  ForEachRow(outer, 0, data, [&](const std::byte* begin) {
    std::memcpy(end, begin, row);
    end += row;
  });
  bytes->pieces.emplace_back(bytes->packed);
}

// Row-major strides of what Gather made: dimensions that repeat keep 0.
std::vector<int64_t> GatheredStrides(const TensorView& tensor) {
  std::vector<int64_t> sent = tensor.shape;
  for (size_t d = 0; d < sent.size(); ++d) {
    if (tensor.strides[d] == 0 && d + 1 < sent.size()) sent[d] = 1;
  }
  std::vector<int64_t> strides = ContiguousStrides(tensor.dtype, sent);
  for (size_t d = 0; d + 1 < sent.size(); ++d) {
    if (tensor.strides[d] == 0) strides[d] = 0;
  }
  return strides;
}

}  // namespace

absl::StatusOr<TensorBytes> BytesOf(const std::string& field,
                                    const TensorView& tensor) {
  const absl::StatusOr<int64_t> elements = NumElements(tensor.shape);
  if (!elements.ok()) {
    return InvalidField(field + ".shape", "a negative or too large size",
                        "sizes >= 0, at most 2^58 elements");
  }
  TensorBytes bytes;
  const bool contiguous = tensor.strides.empty();
  if (!contiguous) {
    absl::Status status = CheckStrides(field, tensor);
    if (!status.ok()) return status;
  }
  if (*elements == 0) return bytes;
  if (tensor.data == nullptr) {
    return InvalidField(field + ".data", "null",
                        absl::StrCat("the memory of ", *elements, " elements"));
  }
  const std::vector<int64_t> strides =
      contiguous ? ContiguousStrides(tensor.dtype, tensor.shape)
                 : tensor.strides;
  int64_t row_bytes = tensor.shape.empty()
                          ? NumBytes(tensor.dtype, 1)
                          : NumBytes(tensor.dtype, tensor.shape.back());
  const std::vector<Dimension> outer =
      OuterDimensions(tensor, strides, &row_bytes);
  bytes.num_bytes = row_bytes;
  for (const Dimension& dimension : outer) bytes.num_bytes *= dimension.size;
  const auto* data = static_cast<const std::byte*>(tensor.data);
  if (contiguous || IsDense(outer, row_bytes)) {
    bytes.strides = tensor.strides;
    bytes.pieces.emplace_back(data, static_cast<size_t>(bytes.num_bytes));
    return bytes;
  }
  bytes.strides = GatheredStrides(tensor);
  Gather(outer, row_bytes, data, &bytes);
  return bytes;
}

}  // namespace attendant::client
