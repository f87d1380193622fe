#include "tests/integration/probe.h"

#include <cstring>
#include <string>

#include "tests/testing/malformed_requests.h"

namespace attendant::testing {
namespace {

using kernels::DataType;

v1::DataType WireType(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat16:
      return v1::DATA_TYPE_FP16;
    case DataType::kBFloat16:
      return v1::DATA_TYPE_BF16;
    default:
      return v1::DATA_TYPE_FP32;
  }
}

struct Dimensions {
  int64_t batch, rows, heads, columns;
};

int64_t IndexOf(v1::Layout layout, const Dimensions& size, int64_t b, int64_t i,
                int64_t h, int64_t d) {
  return layout == v1::LAYOUT_BHSD
             ? ((b * size.heads + h) * size.rows + i) * size.columns + d
             : ((b * size.rows + i) * size.heads + h) * size.columns + d;
}

template <typename Visitor>
void ForEach(const Dimensions& size, const Visitor& visit) {
  for (int64_t b = 0; b < size.batch; ++b) {
    for (int64_t i = 0; i < size.rows; ++i) {
      for (int64_t h = 0; h < size.heads; ++h) {
        for (int64_t d = 0; d < size.columns; ++d) visit(b, i, h, d);
      }
    }
  }
}

void Fill(DataType dtype, v1::Layout layout, const Dimensions& size,
          const ProbeValue& value, v1::TensorSpec* spec, std::string* data) {
  std::vector<int64_t> shape = {size.batch, size.rows, size.heads,
                                size.columns};
  if (layout == v1::LAYOUT_BHSD) std::swap(shape[1], shape[2]);
  if (layout == v1::LAYOUT_THD) {
    shape = {size.batch * size.rows, size.heads, size.columns};
  }
  SetTensor(WireType(dtype), layout, shape, spec, data);
  ForEach(size, [&](int64_t b, int64_t i, int64_t h, int64_t d) {
    kernels::StoreFromFloat(data->data(), dtype,
                            IndexOf(layout, size, b, i, h, d),
                            value(b, i, h, d));
  });
}

DataType HostType(v1::DataType dtype) {
  if (dtype == v1::DATA_TYPE_FP16) return DataType::kFloat16;
  return dtype == v1::DATA_TYPE_BF16 ? DataType::kBFloat16 : DataType::kFloat32;
}

}  // namespace

v1::AttendRequest ProbeRequest(kernels::DataType dtype, v1::Layout layout,
                               const ProbeSizes& sizes, const ProbeValue& q,
                               const ProbeValue& k, const ProbeValue& v) {
  v1::AttendRequest request;
  request.set_return_lse(true);
  Fill(dtype, layout, {sizes.batch, sizes.len_q, sizes.q_heads, sizes.head_dim},
       q, request.mutable_q(), request.mutable_q_data());
  Fill(dtype, layout,
       {sizes.batch, sizes.len_k, sizes.kv_heads, sizes.head_dim}, k,
       request.mutable_k(), request.mutable_k_data());
  Fill(dtype, layout,
       {sizes.batch, sizes.len_k, sizes.kv_heads, sizes.head_dim_v}, v,
       request.mutable_v(), request.mutable_v_data());
  if (layout == v1::LAYOUT_THD) {
    for (int64_t b = 0; b <= sizes.batch; ++b) {
      request.add_cu_seqlens_q(static_cast<int32_t>(b * sizes.len_q));
      request.add_cu_seqlens_k(static_cast<int32_t>(b * sizes.len_k));
    }
  }
  return request;
}

ProbeAnswer ReadAnswer(const v1::AttendResponse& reply,
                       const ProbeSizes& sizes) {
  const v1::Layout layout = reply.output().layout();
  const DataType dtype = HostType(reply.output().dtype());
  const Dimensions size = {sizes.batch, sizes.len_q, sizes.q_heads,
                           sizes.head_dim_v};
  ProbeAnswer answer;
  ForEach(size, [&](int64_t b, int64_t i, int64_t h, int64_t d) {
    answer.out.push_back(kernels::LoadAsFloat(
        reply.output_data().data(), dtype, IndexOf(layout, size, b, i, h, d)));
  });
  const bool thd = layout == v1::LAYOUT_THD;
  const auto* lse = reply.lse_data().data();
  for (int64_t b = 0; b < sizes.batch; ++b) {
    for (int64_t h = 0; h < sizes.q_heads; ++h) {
      for (int64_t i = 0; i < sizes.len_q; ++i) {
        const int64_t at = thd ? (h * sizes.batch + b) * sizes.len_q + i
                               : (b * sizes.q_heads + h) * sizes.len_q + i;
        answer.lse.push_back(kernels::LoadAsFloat(lse, DataType::kFloat32, at));
      }
    }
  }
  return answer;
}

}  // namespace attendant::testing
