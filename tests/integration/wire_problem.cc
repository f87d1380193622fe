#include "tests/integration/wire_problem.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace attendant::testing {
namespace {

using kernels::AttentionProblem;
using kernels::DataType;
using kernels::MaskKind;
using kernels::SizeOf;

v1::DataType WireType(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return v1::DATA_TYPE_FP32;
    case DataType::kFloat16:
      return v1::DATA_TYPE_FP16;
    case DataType::kBFloat16:
      return v1::DATA_TYPE_BF16;
  }
  return v1::DATA_TYPE_UNSPECIFIED;
}

v1::Layout WireLayout(Layout layout) {
  switch (layout) {
    case Layout::kBhsd:
      return v1::LAYOUT_BHSD;
    case Layout::kThd:
      return v1::LAYOUT_THD;
    case Layout::kBshd:
    case Layout::kPackedQkv:
      return v1::LAYOUT_BSHD;
  }
  return v1::LAYOUT_UNSPECIFIED;
}

std::vector<int64_t> ShapeOf(Layout layout, int64_t batch, int64_t rows,
                             int64_t heads, int64_t dim) {
  if (layout == Layout::kThd) return {rows, heads, dim};
  if (layout == Layout::kBhsd) return {batch, heads, rows, dim};
  return {batch, rows, heads, dim};
}

template <typename View>
std::vector<int64_t> StridesOf(Layout layout, const View& view) {
  if (layout == Layout::kThd) return {view.row_stride, view.head_stride, 1};
  if (layout == Layout::kBhsd) {
    return {view.batch_stride, view.head_stride, view.row_stride, 1};
  }
  return {view.batch_stride, view.row_stride, view.head_stride, 1};
}

// From the first element to the last one, both included.
int64_t SpanOf(const std::vector<int64_t>& shape,
               const std::vector<int64_t>& strides) {
  int64_t span = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0) return 0;
    span += (shape[i] - 1) * strides[i];
  }
  return span;
}

bool IsContiguous(const std::vector<int64_t>& shape,
                  const std::vector<int64_t>& strides) {
  int64_t expected = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

struct Field {
  v1::TensorSpec* spec;
  std::string* data;
};

void SetTensor(const HostProblem& owner, const kernels::InputTensor& view,
               int64_t rows, int64_t heads, int64_t dim, Field field) {
  const Layout layout = owner.options().layout;
  const DataType dtype = owner.problem().dtype;
  const auto shape = ShapeOf(layout, owner.problem().batch, rows, heads, dim);
  const auto strides = StridesOf(layout, view);
  field.spec->set_dtype(WireType(dtype));
  field.spec->set_layout(WireLayout(layout));
  for (const int64_t size : shape) field.spec->add_shape(size);
  if (!IsContiguous(shape, strides)) {
    for (const int64_t stride : strides) field.spec->add_strides(stride);
  }
  field.data->assign(static_cast<const char*>(view.data),
                     SpanOf(shape, strides) * SizeOf(dtype));
}

struct Rows {
  int64_t q = 0, kv = 0;  // stored (THD: in all)
  int64_t longest_q = 0, longest_kv = 0;
};

Rows RowsOf(const HostProblem& owner) {
  const ProblemOptions& options = owner.options();
  Rows rows{owner.problem().rows_q, options.seqlen_kv, 0, 0};
  const bool packed = options.layout == Layout::kThd;
  if (packed) rows.kv = 0;
  for (int64_t b = 0; b < owner.problem().batch; ++b) {
    const auto& sequence = owner.problem().sequence(b);
    if (packed) rows.kv = sequence.kv_begin + sequence.len_kv;
    rows.longest_q = std::max(rows.longest_q, sequence.len_q);
    rows.longest_kv = std::max(rows.longest_kv, sequence.len_kv);
  }
  return rows;
}

void SetMask(const HostProblem& owner, const Rows& rows,
             v1::AttendRequest* request) {
  const kernels::MaskView& mask = owner.problem().mask;
  if (mask.kind == MaskKind::kNone) return;
  const bool bits = mask.kind == MaskKind::kBoolBits;
  const bool additive = mask.kind == MaskKind::kAdditive;
  const bool packed = owner.options().layout == Layout::kThd;
  const std::vector<int64_t> shape = {
      owner.options().mask_per_batch ? owner.problem().batch : 1,
      owner.options().mask_per_head ? owner.problem().num_q_heads : 1,
      packed ? rows.longest_q : rows.q, packed ? rows.longest_kv : rows.kv};
  const int64_t unit = bits ? 8 : 1;
  const std::vector<int64_t> strides = {mask.batch_stride * unit,
                                        mask.head_stride * unit,
                                        mask.row_stride * unit, 1};
  v1::TensorSpec* spec = request->mutable_mask();
  spec->set_dtype(bits       ? v1::DATA_TYPE_BOOL_BITS
                  : additive ? WireType(mask.dtype)
                             : v1::DATA_TYPE_BOOL);
  for (const int64_t size : shape) spec->add_shape(size);
  for (const int64_t stride : strides) spec->add_strides(stride);
  const int64_t entries = SpanOf(shape, strides);
  const int64_t bytes = bits       ? (entries + 7) / 8
                        : additive ? entries * SizeOf(mask.dtype)
                                   : entries;
  request->set_mask_data(mask.data, bytes);
}

void SetLengths(const HostProblem& owner, v1::AttendRequest* request) {
  const ProblemOptions& options = owner.options();
  if (options.layout == Layout::kThd) {
    request->add_cu_seqlens_q(0);
    request->add_cu_seqlens_k(0);
    for (int64_t b = 0; b < owner.problem().batch; ++b) {
      const auto& s = owner.problem().sequence(b);
      request->add_cu_seqlens_q(static_cast<int32_t>(s.q_begin + s.len_q));
      request->add_cu_seqlens_k(static_cast<int32_t>(s.kv_begin + s.len_kv));
    }
    return;
  }
  for (const int64_t n : options.lens_q) request->add_seqlens_q(n);
  for (const int64_t n : options.lens_kv) request->add_seqlens_k(n);
  for (const int64_t n : options.skips_q) request->add_starts_q(n);
  for (const int64_t n : options.skips_kv) request->add_starts_k(n);
}

void SetOptions(const HostProblem& owner, v1::AttendRequest* request) {
  const AttentionProblem& p = owner.problem();
  const ProblemOptions& options = owner.options();
  request->set_output_dtype(WireType(p.output_dtype));
  if (options.softmax_scale) request->set_softmax_scale(p.softmax_scale);
  if (p.softcap != 0) request->set_softcap(p.softcap);
  request->set_causal(p.causal);
  request->set_alignment(options.bottom_right
                             ? v1::CAUSAL_ALIGNMENT_BOTTOM_RIGHT
                             : v1::CAUSAL_ALIGNMENT_TOP_LEFT);
  if (p.window_left != kernels::kWindowOpen) {
    request->set_window_left(p.window_left);
  }
  if (p.window_right != kernels::kWindowOpen) {
    request->set_window_right(p.window_right);
  }
  for (const float slope : p.alibi_slopes) request->add_alibi_slopes(slope);
  for (const float sink : p.sinks) request->add_sinks(sink);
  request->set_return_lse(options.lse);
}

::testing::AssertionResult CheckSpec(const v1::TensorSpec& spec,
                                     const std::vector<int64_t>& shape,
                                     v1::DataType dtype, size_t bytes,
                                     int64_t element_bytes, const char* name) {
  const std::vector<int64_t> got(spec.shape().begin(), spec.shape().end());
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  if (got == shape && spec.dtype() == dtype &&
      static_cast<int64_t>(bytes) == elements * element_bytes) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure()
         << name << " has spec " << spec.ShortDebugString() << " and " << bytes
         << " bytes, want shape " << ::testing::PrintToString(shape)
         << ", dtype " << v1::DataType_Name(dtype);
}

}  // namespace

v1::AttendRequest ToWire(const HostProblem& owner) {
  const AttentionProblem& p = owner.problem();
  const Rows rows = RowsOf(owner);
  v1::AttendRequest request;
  if (owner.options().layout == Layout::kPackedQkv) {
    SetTensor(owner, p.q, rows.q, p.num_q_heads + 2 * p.num_kv_heads,
              p.head_dim, {request.mutable_qkv(), request.mutable_qkv_data()});
    request.set_num_q_heads(p.num_q_heads);
    request.set_num_kv_heads(p.num_kv_heads);
  } else {
    SetTensor(owner, p.q, rows.q, p.num_q_heads, p.head_dim,
              {request.mutable_q(), request.mutable_q_data()});
    SetTensor(owner, p.k, rows.kv, p.num_kv_heads, p.head_dim,
              {request.mutable_k(), request.mutable_k_data()});
    SetTensor(owner, p.v, rows.kv, p.num_kv_heads, p.head_dim_v,
              {request.mutable_v(), request.mutable_v_data()});
  }
  SetLengths(owner, &request);
  SetOptions(owner, &request);
  SetMask(owner, rows, &request);
  return request;
}

::testing::AssertionResult FromWire(const v1::AttendResponse& reply,
                                    HostProblem* owner) {
  const AttentionProblem& p = owner->problem();
  const Layout layout = owner->options().layout;
  const int64_t size = SizeOf(p.output_dtype);
  const auto shape =
      ShapeOf(layout, p.batch, p.rows_q, p.num_q_heads, p.head_dim_v);
  if (auto bad = CheckSpec(reply.output(), shape, WireType(p.output_dtype),
                           reply.output_data().size(), size, "output");
      !bad) {
    return bad;
  }
  if (reply.output().layout() != WireLayout(layout)) {
    return ::testing::AssertionFailure()
           << "output has layout " << v1::Layout_Name(reply.output().layout());
  }
  owner->PoisonOutputs();
  const bool packed = layout == Layout::kThd;
  const int64_t entries = packed ? 1 : p.batch;
  const char* from = reply.output_data().data();
  char* out = static_cast<char*>(p.out.data);
  const bool heads_first = layout == Layout::kBhsd;
  const int64_t outer = heads_first ? p.num_q_heads : p.rows_q;
  const int64_t inner = heads_first ? p.rows_q : p.num_q_heads;
  for (int64_t b = 0; b < entries; ++b) {
    for (int64_t i = 0; i < outer; ++i) {
      for (int64_t j = 0; j < inner; ++j) {
        const int64_t row = heads_first ? j : i;
        const int64_t head = heads_first ? i : j;
        std::memcpy(out + (b * p.out.batch_stride + row * p.out.row_stride +
                           head * p.out.head_stride) *
                              size,
                    from, p.head_dim_v * size);
        from += p.head_dim_v * size;
      }
    }
  }
  if (p.lse == nullptr) return ::testing::AssertionSuccess();
  std::vector<int64_t> lse_shape = {p.num_q_heads, p.rows_q};
  if (!packed) lse_shape.insert(lse_shape.begin(), p.batch);
  std::memcpy(p.lse, reply.lse_data().data(),
              std::min<size_t>(reply.lse_data().size(),
                               entries * p.num_q_heads * p.rows_q * 4));
  return CheckSpec(reply.lse(), lse_shape, v1::DATA_TYPE_FP32,
                   reply.lse_data().size(), 4, "lse");
}

}  // namespace attendant::testing
