#include "server/request/tensor_geometry.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status_macros.h"
#include "server/request/errors.h"

namespace attendant::server {
namespace {

// Checked arithmetic: false on overflow.
bool MultiplyInto(int64_t factor, int64_t* product) {
  return !__builtin_mul_overflow(*product, factor, product);
}
bool AddInto(int64_t term, int64_t* sum) {
  return !__builtin_add_overflow(*sum, term, sum);
}

int64_t BytesOf(v1::DataType dtype) {
  switch (dtype) {
    case v1::DATA_TYPE_FP32:
      return 4;
    case v1::DATA_TYPE_FP16:
    case v1::DATA_TYPE_BF16:
      return 2;
    default:
      return 1;  // BOOL, and a byte of BOOL_BITS
  }
}

std::string SizesText(const std::vector<int64_t>& sizes) {
  return absl::StrCat("[", absl::StrJoin(sizes, ", "), "]");
}

absl::Status TooLarge(const std::string& name,
                      const std::vector<int64_t>& sizes, int64_t max_bytes) {
  return InvalidField(
      absl::StrCat(name, ".shape"),
      absl::StrCat(SizesText(sizes), " with its strides"),
      max_bytes < kMaxTensorBytes
          ? absl::StrCat("of at most ", max_bytes, " bytes (max_request_bytes)")
          : absl::StrCat("of at most ", max_bytes, " bytes"));
}

absl::Status ReadSizes(const std::string& name, const v1::TensorSpec& spec,
                       int rank, const std::string& dimensions,
                       std::vector<int64_t>* sizes) {
  if (spec.shape_size() != rank) {
    return InvalidField(absl::StrCat(name, ".shape"),
                        absl::StrCat("of ", spec.shape_size(), " dimensions"),
                        absl::StrCat("of ", rank, ": ", dimensions));
  }
  for (int i = 0; i < rank; ++i) {
    if (spec.shape(i) < 0) {
      return InvalidField(ShapeField(name, i), absl::StrCat(spec.shape(i)),
                          "at least 0");
    }
  }
  sizes->assign(spec.shape().begin(), spec.shape().end());
  return absl::OkStatus();
}

absl::Status CheckStrides(const std::string& name, const v1::TensorSpec& spec,
                          int rank) {
  if (spec.strides_size() == 0) return absl::OkStatus();
  if (spec.strides_size() != rank) {
    return InvalidField(absl::StrCat(name, ".strides"),
                        absl::StrCat(spec.strides_size(), " entries"),
                        absl::StrCat(rank, " entries, or none"));
  }
  for (int i = 0; i < rank; ++i) {
    const int64_t stride = spec.strides(i);
    const std::string field = absl::StrCat(name, ".strides[", i, "]");
    const std::string value = absl::StrCat(stride);
    if (stride < 0) return InvalidField(field, value, "at least 0");
    if (i == rank - 1 && stride != 1) {
      return InvalidField(field, value, "1 (the innermost dimension)");
    }
    if (i < rank - 1 && spec.dtype() == v1::DATA_TYPE_BOOL_BITS &&
        stride % 8 != 0) {
      return InvalidField(field, value, "a multiple of 8 (BOOL_BITS)");
    }
  }
  return absl::OkStatus();
}

// Rows of bits start on bytes of their own.
int64_t RowEntries(v1::DataType dtype, int64_t size) {
  if (dtype != v1::DATA_TYPE_BOOL_BITS) return size;
  return size / 8 * 8 + (size % 8 != 0 ? 8 : 0);
}

// Entries from the first to one past the last, whole bytes of bits. False on
// overflow. Fills in strides that mean nothing or are unset.
bool Span(const v1::TensorSpec& spec, TensorGeometry* tensor, int64_t* span) {
  const std::vector<int64_t>& sizes = tensor->sizes;
  const int rank = static_cast<int>(sizes.size());
  const bool empty = std::count(sizes.begin(), sizes.end(), 0) > 0;
  tensor->strides.assign(rank, 1);
  if (sizes[rank - 1] > std::numeric_limits<int64_t>::max() - 8) return false;
  *span = RowEntries(tensor->dtype, sizes[rank - 1]);
  int64_t contiguous = std::max<int64_t>(*span, 1);
  for (int i = rank - 2; i >= 0; --i) {
    const bool given = spec.strides_size() > 0 && sizes[i] > 1 && !empty;
    const int64_t stride = given ? spec.strides(i) : contiguous;
    tensor->strides[i] = stride;
    int64_t reach = stride;
    int64_t next = stride;
    const bool fits = MultiplyInto(std::max<int64_t>(sizes[i], 1), &next) &&
                      MultiplyInto(sizes[i] - 1, &reach) &&
                      AddInto(reach, span);
    if (!fits && !empty) return false;
    contiguous = fits ? next : 1;
  }
  if (empty) *span = 0;
  return true;
}

}  // namespace

std::string ShapeField(const std::string& name, int dimension) {
  return absl::StrCat(name, ".shape[", dimension, "]");
}

std::string DataTypeText(v1::DataType dtype) {
  constexpr size_t kPrefix = sizeof("DATA_TYPE_") - 1;
  const std::string& name = v1::DataType_Name(dtype);
  return name.empty() ? absl::StrCat(static_cast<int>(dtype))
                      : name.substr(kPrefix);
}

absl::StatusOr<kernels::DataType> ElementType(const std::string& field,
                                              v1::DataType dtype) {
  constexpr char kBound[] = "FP32, FP16 or BF16";
  switch (dtype) {
    case v1::DATA_TYPE_FP32:
      return kernels::DataType::kFloat32;
    case v1::DATA_TYPE_FP16:
      return kernels::DataType::kFloat16;
    case v1::DATA_TYPE_BF16:
      return kernels::DataType::kBFloat16;
    case v1::DATA_TYPE_UNSPECIFIED:
    case v1::DATA_TYPE_BOOL:
    case v1::DATA_TYPE_BOOL_BITS:
      return InvalidField(field, DataTypeText(dtype), kBound);
    default:
      return UnimplementedField(field, DataTypeText(dtype), kBound);
  }
}

v1::DataType ToProto(kernels::DataType dtype) {
  switch (dtype) {
    case kernels::DataType::kFloat32:
      return v1::DATA_TYPE_FP32;
    case kernels::DataType::kFloat16:
      return v1::DATA_TYPE_FP16;
    case kernels::DataType::kBFloat16:
      return v1::DATA_TYPE_BF16;
  }
  return v1::DATA_TYPE_UNSPECIFIED;
}

absl::StatusOr<TensorGeometry> ResolveGeometry(const std::string& name,
                                               const v1::TensorSpec& spec,
                                               int rank,
                                               const std::string& dimensions,
                                               const Bounds& bounds) {
  if (spec.has_region()) {
    RETURN_IF_ERROR(CheckRegionsServed(absl::StrCat(name, ".region"), bounds));
  }
  TensorGeometry tensor;
  tensor.dtype = spec.dtype();
  RETURN_IF_ERROR(ReadSizes(name, spec, rank, dimensions, &tensor.sizes));
  RETURN_IF_ERROR(CheckStrides(name, spec, rank));
  const int64_t max_bytes =
      spec.has_region() ? kMaxTensorBytes
                        : std::min(bounds.max_request_bytes, kMaxTensorBytes);
  int64_t span = 0;
  bool fits = Span(spec, &tensor, &span);
  if (tensor.dtype == v1::DATA_TYPE_BOOL_BITS) span /= 8;
  fits = fits && MultiplyInto(BytesOf(tensor.dtype), &span);
  if (!fits || span > max_bytes) return TooLarge(name, tensor.sizes, max_bytes);
  if (spec.has_region()) {
    RETURN_IF_ERROR(CheckRegionLength(absl::StrCat(name, ".region"),
                                      spec.region(), span, bounds));
  }
  tensor.wire_bytes = span;
  return tensor;
}

absl::Status CheckRegionsServed(const std::string& field,
                                const Bounds& bounds) {
  if (bounds.max_regions > 0) return absl::OkStatus();
  return UnimplementedField(
      field, "set", "unset (inline): this server was started without regions");
}

absl::Status CheckRegionLength(const std::string& field,
                               const v1::Region& region, int64_t bytes,
                               const Bounds& bounds) {
  if (region.byte_offset() < 0 ||
      region.byte_offset() % bounds.region_alignment_bytes != 0) {
    return InvalidField(
        absl::StrCat(field, ".byte_offset"), absl::StrCat(region.byte_offset()),
        absl::StrCat("a multiple of ", bounds.region_alignment_bytes,
                     " (region_alignment_bytes), at least 0"));
  }
  if (region.byte_length() == bytes) return absl::OkStatus();
  return InvalidField(
      absl::StrCat(field, ".byte_length"), absl::StrCat(region.byte_length()),
      absl::StrCat("exactly the ", bytes, " bytes that the tensor spans"));
}

absl::Status CheckWireBytes(const std::string& name, const v1::TensorSpec& spec,
                            const ParsedRequest::Extent& extent,
                            int64_t wire_bytes) {
  if (extent.bytes == kInChunks) return absl::OkStatus();
  const int64_t sent = std::max<int64_t>(extent.bytes, 0);
  if (spec.has_region()) {
    if (sent == 0) return absl::OkStatus();
    return InvalidField(absl::StrCat(name, "_data"),
                        absl::StrCat(sent, " bytes"),
                        absl::StrCat("absent, as ", name, ".region is set"));
  }
  if (sent == wire_bytes) return absl::OkStatus();
  return InvalidField(
      absl::StrCat(name, "_data"), absl::StrCat(sent, " bytes"),
      absl::StrCat("exactly the ", wire_bytes, " bytes that ", name, " spans"));
}

absl::Status CheckAtMost(const std::string& field, int64_t value, int64_t bound,
                         const std::string& bound_name) {
  if (value >= 0 && value <= bound) return absl::OkStatus();
  return InvalidField(field, absl::StrCat(value),
                      absl::StrCat("0..", bound, " (", bound_name, ")"));
}

}  // namespace attendant::server
