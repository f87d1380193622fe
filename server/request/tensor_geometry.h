// One TensorSpec, checked: element type, sizes, strides, bytes on the wire.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attendant/v1/attention.pb.h"
#include "kernels/base/data_type.h"
#include "server/request/bounds.h"
#include "server/request/wire_codec.h"

namespace attendant::server {

// Sizes and strides in elements, outermost first, as the spec orders them.
struct TensorGeometry {
  v1::DataType dtype = v1::DATA_TYPE_UNSPECIFIED;
  std::vector<int64_t> sizes;
  // Of a dimension with fewer than two entries (whose stride means nothing) or
  // of an empty tensor: what a contiguous tensor has.
  std::vector<int64_t> strides;
  int64_t wire_bytes = 0;  // that sizes and strides span
};

// "q.shape[2]", for error messages.
std::string ShapeField(const std::string& name, int dimension);

// "FP32", or "FP8_E4M3", or "99" for a number without a name.
std::string DataTypeText(v1::DataType dtype);

// fp32, fp16 and bf16 only. Errors name `field`: INVALID_ARGUMENT (unset,
// boolean), UNIMPLEMENTED (fp8, a number this server does not know).
absl::StatusOr<kernels::DataType> ElementType(const std::string& field,
                                              v1::DataType dtype);
v1::DataType ToProto(kernels::DataType dtype);

// Checks region, rank, sizes and strides of `spec`, called `name` in errors;
// its dtype is known to be one that has a size. `dimensions` names them, e.g.
// "[batch, seqlen, heads, head_dim]". No arithmetic overflows, whatever the
// spec says; wire_bytes is at most kMaxTensorBytes and
// bounds.max_request_bytes, or for a tensor in a region exactly the region's
// byte_length.
absl::StatusOr<TensorGeometry> ResolveGeometry(const std::string& name,
                                               const v1::TensorSpec& spec,
                                               int rank,
                                               const std::string& dimensions,
                                               const Bounds& bounds);

// The bytes field of tensor `name` must hold exactly what its spec spans; it is
// absent for a tensor in a region.
absl::Status CheckWireBytes(const std::string& name, const v1::TensorSpec& spec,
                            const ParsedRequest::Extent& extent,
                            int64_t wire_bytes);

// UNIMPLEMENTED on a server without regions.
absl::Status CheckRegionsServed(const std::string& field, const Bounds& bounds);
// A region called `field` in errors must hold exactly `bytes`, at an offset
// that is one.
absl::Status CheckRegionLength(const std::string& field,
                               const v1::Region& region, int64_t bytes,
                               const Bounds& bounds);

// value in [0, bound] or INVALID_ARGUMENT with field and the bound's name.
absl::Status CheckAtMost(const std::string& field, int64_t value, int64_t bound,
                         const std::string& bound_name);

}  // namespace attendant::server
