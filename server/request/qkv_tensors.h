// q, k and v of a request as views: from three tensors or from a packed one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "attendant/v1/attention.pb.h"
#include "kernels/problem.h"
#include "server/request/bounds.h"
#include "server/request/wire_codec.h"

namespace attendant::server {

struct QkvView {
  int64_t batch = 1;  // THD: 1
  int64_t rows = 0;   // per batch entry; THD: in all
  int64_t heads = 0;
  int64_t head_dim = 0;
  kernels::InputTensor strides;  // data is null
};

struct QkvTensors {
  v1::Layout layout = v1::LAYOUT_UNSPECIFIED;
  v1::DataType dtype = v1::DATA_TYPE_UNSPECIFIED;  // one of ElementType's
  std::string dtype_field;                         // "q.dtype" or "qkv.dtype"
  QkvView q, k, v;
  bool packed_qkv = false;
  // Packed: where k and v begin, in elements from q's first.
  int64_t k_elements = 0;
  int64_t v_elements = 0;
  // What is on the wire: q, k and v, or qkv.
  struct Part {
    TensorField field;
    int64_t wire_bytes;
  };
  std::vector<Part> parts;
};

// Where a layout's dimensions stand; batch -1 = it has none.
struct LayoutOrder {
  int rank, batch, rows, heads, head_dim;
  const char* dimensions;  // for error messages
};
LayoutOrder OrderOf(v1::Layout layout);

// Checks everything that concerns q, k, v and qkv alone: specs, agreement,
// head_dim, the GQA rule, bounds, bytes sent. Errors: INVALID_ARGUMENT,
// UNIMPLEMENTED (regions, fp8, enum values of a newer contract).
absl::StatusOr<QkvTensors> ResolveQkv(const ParsedRequest& request,
                                      const Bounds& bounds);

}  // namespace attendant::server
