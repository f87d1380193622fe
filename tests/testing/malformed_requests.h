// Requests that must be refused, each with the code, field, value and bound
// that its error carries. Shared by the validator's test and by the test that
// sends each through a real server.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "attendant/v1/attention.pb.h"

namespace attendant::testing {

// A small valid request, fp32 BSHD, causal, with LSE: batch 2, 3 queries,
// 4 keys, 4 query heads, 2 KV heads, head_dim 8. Served by every CPU device.
v1::AttendRequest GoodRequest();
// The same sizes as THD with cu_seqlens [0, 2, 6] and [0, 3, 8].
v1::AttendRequest GoodPackedRequest();
// Packed qkv [2, 3, 3, 2, 8], and [2, 3, 4 + 2 * 2, 8] with GQA.
v1::AttendRequest GoodQkvRequest();
v1::AttendRequest GoodGroupedQkvRequest();

// Sets shape, dtype, layout and bytes (zeros) of a tensor.
void SetTensor(v1::DataType dtype, v1::Layout layout,
               const std::vector<int64_t>& shape, v1::TensorSpec* spec,
               std::string* data);

struct MalformedRequest {
  std::string name;
  std::function<void(v1::AttendRequest&)> mutate;  // applied to GoodRequest()
  absl::StatusCode code;
  std::string field;  // exactly
  std::string value;  // part of the detail's
  std::string bound;  // part of the detail's
};

// Refused by a CPU device under default Bounds.
std::vector<MalformedRequest> MalformedRequests();

}  // namespace attendant::testing
