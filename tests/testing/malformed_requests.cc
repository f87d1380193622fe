#include "tests/testing/malformed_requests.h"

#include <cstring>

#include "tests/testing/malformed_tables.h"

namespace attendant::testing {
namespace {

int64_t BytesOf(v1::DataType dtype) {
  if (dtype == v1::DATA_TYPE_FP32) return 4;
  return dtype == v1::DATA_TYPE_BOOL ? 1 : 2;
}

// fp32 values in [-1, 1) from a fixed generator.
std::string Values(size_t count, uint32_t seed) {
  std::string bytes(count * sizeof(float), '\0');
  for (size_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    const float value = static_cast<float>(seed >> 8) / 8388608.0f - 1.0f;
    std::memcpy(&bytes[i * sizeof(float)], &value, sizeof(float));
  }
  return bytes;
}

void FillWithValues(Request* request) {
  request->set_q_data(Values(request->q_data().size() / 4, 1));
  request->set_k_data(Values(request->k_data().size() / 4, 2));
  request->set_v_data(Values(request->v_data().size() / 4, 3));
  request->set_qkv_data(Values(request->qkv_data().size() / 4, 4));
}

}  // namespace

void SetTensor(v1::DataType dtype, v1::Layout layout,
               const std::vector<int64_t>& shape, v1::TensorSpec* spec,
               std::string* data) {
  spec->Clear();
  spec->set_dtype(dtype);
  spec->set_layout(layout);
  int64_t bytes = BytesOf(dtype);
  for (const int64_t size : shape) {
    spec->add_shape(size);
    bytes *= size;
  }
  data->assign(static_cast<size_t>(bytes), '\0');
}

v1::AttendRequest GoodRequest() {
  Request r;
  r.set_request_id("good-1");
  SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_BSHD, {2, 3, 4, 8}, r.mutable_q(),
            r.mutable_q_data());
  SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_BSHD, {2, 4, 2, 8}, r.mutable_k(),
            r.mutable_k_data());
  SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_BSHD, {2, 4, 2, 8}, r.mutable_v(),
            r.mutable_v_data());
  r.set_causal(true);
  r.set_alignment(v1::CAUSAL_ALIGNMENT_BOTTOM_RIGHT);
  r.set_return_lse(true);
  FillWithValues(&r);
  return r;
}

v1::AttendRequest GoodPackedRequest() {
  Request r = GoodRequest();
  SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_THD, {6, 4, 8}, r.mutable_q(),
            r.mutable_q_data());
  SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_THD, {8, 2, 8}, r.mutable_k(),
            r.mutable_k_data());
  SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_THD, {8, 2, 8}, r.mutable_v(),
            r.mutable_v_data());
  for (const int32_t start : {0, 2, 6}) r.add_cu_seqlens_q(start);
  for (const int32_t start : {0, 3, 8}) r.add_cu_seqlens_k(start);
  FillWithValues(&r);
  return r;
}

v1::AttendRequest GoodQkvRequest() {
  Request r;
  r.set_request_id("good-qkv");
  SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_BSHD, {2, 3, 3, 2, 8},
            r.mutable_qkv(), r.mutable_qkv_data());
  FillWithValues(&r);
  return r;
}

v1::AttendRequest GoodGroupedQkvRequest() {
  Request r;
  r.set_request_id("good-gqa-qkv");
  SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_BSHD, {2, 3, 8, 8}, r.mutable_qkv(),
            r.mutable_qkv_data());
  r.set_num_q_heads(4);
  r.set_num_kv_heads(2);
  FillWithValues(&r);
  return r;
}

std::vector<MalformedRequest> MalformedRequests() {
  MalformedTable all;
  for (const auto& table : {WireCases(), EnvelopeCases(), TypeCases(),
                            ShapeCases(), StrideAndByteCases(), QkvCases(),
                            LengthCases(), OptionCases(), MaskCases()}) {
    all.insert(all.end(), table.begin(), table.end());
  }
  return all;
}

void SetMask(Request& r, v1::DataType dtype,
             const std::vector<int64_t>& shape) {
  SetTensor(dtype, v1::LAYOUT_UNSPECIFIED, shape, r.mutable_mask(),
            r.mutable_mask_data());
}

void AddStrides(v1::TensorSpec* spec, const std::vector<int64_t>& strides) {
  for (const int64_t stride : strides) spec->add_strides(stride);
}

}  // namespace attendant::testing
