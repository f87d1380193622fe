#include "server/request/qkv_tensors.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/request/errors.h"
#include "server/request/tensor_geometry.h"

namespace attendant::server {
namespace {

std::string LayoutText(v1::Layout layout) {
  constexpr size_t kPrefix = sizeof("LAYOUT_") - 1;
  const std::string& name = v1::Layout_Name(layout);
  return name.empty() ? absl::StrCat(static_cast<int>(layout))
                      : name.substr(kPrefix);
}

absl::Status CheckLayout(const std::string& field, v1::Layout layout,
                         const std::string& bound) {
  if (!v1::Layout_IsValid(layout)) {
    return UnimplementedField(field, LayoutText(layout), bound);
  }
  if (layout == v1::LAYOUT_UNSPECIFIED) {
    return InvalidField(field, LayoutText(layout), bound);
  }
  return absl::OkStatus();
}

QkvView ViewOf(const TensorGeometry& tensor, const LayoutOrder& order) {
  QkvView view;
  view.rows = tensor.sizes[order.rows];
  view.heads = tensor.sizes[order.heads];
  view.head_dim = tensor.sizes[order.head_dim];
  view.strides.row_stride = tensor.strides[order.rows];
  view.strides.head_stride = tensor.strides[order.heads];
  if (order.batch >= 0) {
    view.batch = tensor.sizes[order.batch];
    view.strides.batch_stride = tensor.strides[order.batch];
  }
  return view;
}

absl::Status CheckEqual(const std::string& field, int64_t value,
                        int64_t expected, const std::string& reason) {
  if (value == expected) return absl::OkStatus();
  return InvalidField(field, absl::StrCat(value),
                      absl::StrCat(expected, ", ", reason));
}

// What both forms share: the request, its bounds, names for errors, the result.
class QkvResolver {
 protected:
  QkvResolver(const ParsedRequest& request, const Bounds& bounds)
      : request_(request), header_(request.header), bounds_(bounds) {}

  const ParsedRequest::Extent& ExtentOf(TensorField field) const {
    return request_.tensors[static_cast<int>(field)];
  }

  absl::Status TakeType(const std::string& field, v1::DataType dtype) {
    tensors_.dtype_field = field;
    tensors_.dtype = dtype;
    return ElementType(field, dtype).status();
  }

  absl::Status CheckNoHeadCounts() const {
    constexpr char kBound[] =
        "0 unless qkv is [batch, seqlen, num_q_heads + 2 * num_kv_heads, "
        "head_dim]";
    if (header_.num_q_heads() != 0) {
      return InvalidField("num_q_heads", absl::StrCat(header_.num_q_heads()),
                          kBound);
    }
    if (header_.num_kv_heads() != 0) {
      return InvalidField("num_kv_heads", absl::StrCat(header_.num_kv_heads()),
                          kBound);
    }
    return absl::OkStatus();
  }

  // THD has no batch; its lengths are bounded with cu_seqlens.
  absl::Status CheckBatchAndRows(const std::string& name,
                                 const LayoutOrder& order,
                                 const QkvView& view) const {
    if (order.batch < 0) return absl::OkStatus();
    RETURN_IF_ERROR(CheckAtMost(ShapeField(name, order.batch), view.batch,
                                bounds_.max_batch, "max_batch"));
    return CheckAtMost(ShapeField(name, order.rows), view.rows,
                       bounds_.max_seqlen, "max_seqlen");
  }

  absl::Status CheckHeadDim(const std::string& field, int64_t value) const {
    if (value >= 1 && value <= bounds_.max_head_dim) return absl::OkStatus();
    return InvalidField(
        field, absl::StrCat(value),
        absl::StrCat("1..", bounds_.max_head_dim, " (max_head_dim)"));
  }

  absl::Status CheckHeads(const std::string& q_field,
                          const std::string& kv_field) const {
    const int64_t q_heads = tensors_.q.heads;
    const int64_t kv_heads = tensors_.k.heads;
    RETURN_IF_ERROR(
        CheckAtMost(q_field, q_heads, bounds_.max_heads, "max_heads"));
    RETURN_IF_ERROR(
        CheckAtMost(kv_field, kv_heads, bounds_.max_heads, "max_heads"));
    if (kv_heads == 0 && q_heads > 0) {
      return InvalidField(
          kv_field, "0",
          absl::StrCat("at least 1, as q has ", q_heads, " heads"));
    }
    if (kv_heads > 0 && q_heads % kv_heads != 0) {
      return InvalidField(
          q_field, absl::StrCat(q_heads),
          absl::StrCat("a multiple of the ", kv_heads, " heads of k"));
    }
    return absl::OkStatus();
  }

  // Batch, rows, heads and head_dim are bounded; their product may overflow.
  // What strides of 0 repeat costs work like any other entry.
  absl::Status CheckExpanded(const std::string& name,
                             const QkvView& view) const {
    ASSIGN_OR_RETURN(const kernels::DataType dtype,
                     ElementType(tensors_.dtype_field, tensors_.dtype));
    int64_t bytes = kernels::SizeOf(dtype);
    if (!__builtin_mul_overflow(bytes, view.batch, &bytes) &&
        !__builtin_mul_overflow(bytes, view.rows, &bytes) &&
        !__builtin_mul_overflow(bytes, view.heads, &bytes) &&
        !__builtin_mul_overflow(bytes, view.head_dim, &bytes) &&
        bytes <= bounds_.max_expanded_bytes) {
      return absl::OkStatus();
    }
    return InvalidField(
        absl::StrCat(name, ".shape"),
        absl::StrCat("[batch ", view.batch, ", seqlen ", view.rows, ", heads ",
                     view.heads, ", head_dim ", view.head_dim,
                     "] by strides of 0"),
        absl::StrCat("of at most ", bounds_.max_expanded_bytes,
                     " bytes (max_expanded_bytes)"));
  }

  absl::Status TakeBytes(const std::string& name, const v1::TensorSpec& spec,
                         TensorField field, int64_t wire_bytes) {
    RETURN_IF_ERROR(CheckWireBytes(name, spec, ExtentOf(field), wire_bytes));
    tensors_.parts.push_back({field, wire_bytes});
    return absl::OkStatus();
  }

  const ParsedRequest& request_;
  const v1::AttendRequest& header_;
  const Bounds& bounds_;
  QkvTensors tensors_;
};

class SeparateResolver : private QkvResolver {
 public:
  SeparateResolver(const ParsedRequest& request, const Bounds& bounds)
      : QkvResolver(request, bounds) {}

  absl::StatusOr<QkvTensors> Resolve() {
    RETURN_IF_ERROR(CheckPresence());
    tensors_.layout = header_.q().layout();
    RETURN_IF_ERROR(
        CheckLayout("q.layout", tensors_.layout, "BSHD, BHSD or THD"));
    RETURN_IF_ERROR(TakeType("q.dtype", header_.q().dtype()));
    const LayoutOrder order = OrderOf(tensors_.layout);
    const v1::TensorSpec* specs[] = {&header_.q(), &header_.k(), &header_.v()};
    constexpr const char* kNames[] = {"q", "k", "v"};
    QkvView* views[] = {&tensors_.q, &tensors_.k, &tensors_.v};
    int64_t wire_bytes[3] = {};
    for (int i = 0; i < 3; ++i) {
      RETURN_IF_ERROR(CheckAgrees(kNames[i], *specs[i]));
      ASSIGN_OR_RETURN(const TensorGeometry tensor,
                       ResolveGeometry(kNames[i], *specs[i], order.rank,
                                       order.dimensions, bounds_));
      *views[i] = ViewOf(tensor, order);
      wire_bytes[i] = tensor.wire_bytes;
    }
    RETURN_IF_ERROR(CheckSizes(order));
    for (int i = 0; i < 3; ++i) {
      RETURN_IF_ERROR(CheckExpanded(kNames[i], *views[i]));
      RETURN_IF_ERROR(TakeBytes(kNames[i], *specs[i],
                                static_cast<TensorField>(i), wire_bytes[i]));
    }
    return std::move(tensors_);
  }

 private:
  absl::Status CheckPresence() const {
    if (!header_.has_q()) return InvalidField("q", "unset", "set (or qkv)");
    if (!header_.has_k()) return InvalidField("k", "unset", "set, as q is");
    if (!header_.has_v()) return InvalidField("v", "unset", "set, as q is");
    RETURN_IF_ERROR(CheckNoHeadCounts());
    if (ExtentOf(TensorField::kQkv).bytes > 0) {
      return InvalidField("qkv_data", "given", "absent without qkv");
    }
    return absl::OkStatus();
  }

  absl::Status CheckAgrees(const std::string& name,
                           const v1::TensorSpec& spec) const {
    if (spec.dtype() != tensors_.dtype) {
      const std::string field = absl::StrCat(name, ".dtype");
      RETURN_IF_ERROR(ElementType(field, spec.dtype()).status());
      return InvalidField(
          field, DataTypeText(spec.dtype()),
          absl::StrCat(DataTypeText(tensors_.dtype), ", as q.dtype"));
    }
    if (spec.layout() != tensors_.layout) {
      const std::string field = absl::StrCat(name, ".layout");
      const std::string bound =
          absl::StrCat(LayoutText(tensors_.layout), ", as q.layout");
      RETURN_IF_ERROR(CheckLayout(field, spec.layout(), bound));
      return InvalidField(field, LayoutText(spec.layout()), bound);
    }
    return absl::OkStatus();
  }

  absl::Status CheckSizes(const LayoutOrder& order) const {
    const QkvView& q = tensors_.q;
    const QkvView& k = tensors_.k;
    const QkvView& v = tensors_.v;
    RETURN_IF_ERROR(CheckBatchAndRows("q", order, q));
    RETURN_IF_ERROR(CheckBatchAndRows("k", order, k));
    if (order.batch >= 0) {
      RETURN_IF_ERROR(CheckEqual(ShapeField("k", order.batch), k.batch, q.batch,
                                 "the batch of q"));
      RETURN_IF_ERROR(CheckEqual(ShapeField("v", order.batch), v.batch, q.batch,
                                 "the batch of q"));
    }
    RETURN_IF_ERROR(CheckHeadDim(ShapeField("q", order.head_dim), q.head_dim));
    RETURN_IF_ERROR(CheckHeadDim(ShapeField("v", order.head_dim), v.head_dim));
    RETURN_IF_ERROR(CheckEqual(ShapeField("k", order.head_dim), k.head_dim,
                               q.head_dim, "the head_dim of q"));
    RETURN_IF_ERROR(CheckEqual(ShapeField("v", order.rows), v.rows, k.rows,
                               "the length of k"));
    RETURN_IF_ERROR(CheckEqual(ShapeField("v", order.heads), v.heads, k.heads,
                               "the heads of k"));
    return CheckHeads(ShapeField("q", order.heads),
                      ShapeField("k", order.heads));
  }
};

class PackedResolver : private QkvResolver {
 public:
  PackedResolver(const ParsedRequest& request, const Bounds& bounds)
      : QkvResolver(request, bounds) {}

  absl::StatusOr<QkvTensors> Resolve() {
    RETURN_IF_ERROR(CheckPresence());
    const v1::TensorSpec& spec = header_.qkv();
    tensors_.packed_qkv = true;
    tensors_.layout = spec.layout();
    RETURN_IF_ERROR(CheckLayout("qkv.layout", spec.layout(), "BSHD or THD"));
    if (spec.layout() == v1::LAYOUT_BHSD) {
      return InvalidField("qkv.layout", "BHSD", "BSHD or THD");
    }
    RETURN_IF_ERROR(TakeType("qkv.dtype", spec.dtype()));
    const LayoutOrder order = OrderOf(spec.layout());
    // The form with a dimension of 3 has one dimension more.
    const bool has_three = spec.shape_size() == order.rank + 1;
    const std::string rows =
        order.batch >= 0 ? "[batch, seqlen, " : "[total tokens, ";
    ASSIGN_OR_RETURN(
        const TensorGeometry tensor,
        ResolveGeometry(
            "qkv", spec, order.rank + (has_three ? 1 : 0),
            absl::StrCat(rows, "num_q_heads + 2 * num_kv_heads, head_dim], or ",
                         order.rank + 1, ": ", rows, "3, heads, head_dim]"),
            bounds_));
    RETURN_IF_ERROR(TakeRows(tensor, order));
    RETURN_IF_ERROR(has_three ? SplitThree(tensor) : SplitHeads(tensor));
    RETURN_IF_ERROR(CheckExpanded("qkv", tensors_.q));
    RETURN_IF_ERROR(CheckExpanded("qkv", tensors_.k));
    RETURN_IF_ERROR(
        TakeBytes("qkv", spec, TensorField::kQkv, tensor.wire_bytes));
    return std::move(tensors_);
  }

 private:
  absl::Status CheckPresence() const {
    constexpr char kBound[] = "absent, as qkv is set";
    if (header_.has_q()) return InvalidField("q", "set", kBound);
    if (header_.has_k()) return InvalidField("k", "set", kBound);
    if (header_.has_v()) return InvalidField("v", "set", kBound);
    constexpr const char* kFields[] = {"q_data", "k_data", "v_data"};
    for (int i = 0; i < 3; ++i) {
      if (request_.tensors[i].bytes > 0) {
        return InvalidField(kFields[i], "given", kBound);
      }
    }
    return absl::OkStatus();
  }

  // All but heads, which the two forms have in different places.
  absl::Status TakeRows(const TensorGeometry& tensor,
                        const LayoutOrder& order) {
    const size_t last = tensor.sizes.size() - 1;
    QkvView view;
    view.rows = tensor.sizes[order.rows];
    view.head_dim = tensor.sizes[last];
    view.strides.row_stride = tensor.strides[order.rows];
    view.strides.head_stride = tensor.strides[last - 1];
    if (order.batch >= 0) {
      view.batch = tensor.sizes[order.batch];
      view.strides.batch_stride = tensor.strides[order.batch];
    }
    tensors_.q = tensors_.k = tensors_.v = view;
    RETURN_IF_ERROR(CheckBatchAndRows("qkv", order, view));
    return CheckHeadDim(ShapeField("qkv", static_cast<int>(last)),
                        view.head_dim);
  }

  absl::Status SplitThree(const TensorGeometry& tensor) {
    RETURN_IF_ERROR(CheckNoHeadCounts());
    const int heads = static_cast<int>(tensor.sizes.size()) - 2;
    RETURN_IF_ERROR(CheckEqual(ShapeField("qkv", heads - 1),
                               tensor.sizes[heads - 1], 3, "for q, k and v"));
    tensors_.q.heads = tensors_.k.heads = tensors_.v.heads =
        tensor.sizes[heads];
    if (tensor.wire_bytes > 0) tensors_.k_elements = tensor.strides[heads - 1];
    tensors_.v_elements = 2 * tensors_.k_elements;
    const std::string field = ShapeField("qkv", heads);
    return CheckHeads(field, field);
  }

  absl::Status SplitHeads(const TensorGeometry& tensor) {
    const int heads = static_cast<int>(tensor.sizes.size()) - 2;
    tensors_.q.heads = header_.num_q_heads();
    tensors_.k.heads = tensors_.v.heads = header_.num_kv_heads();
    // Bounded here, before they are added up.
    RETURN_IF_ERROR(CheckHeads("num_q_heads", "num_kv_heads"));
    const int64_t q_heads = tensors_.q.heads;
    const int64_t kv_heads = tensors_.k.heads;
    RETURN_IF_ERROR(CheckEqual(ShapeField("qkv", heads), tensor.sizes[heads],
                               q_heads + 2 * kv_heads,
                               "num_q_heads + 2 * num_kv_heads"));
    if (tensor.wire_bytes > 0) {
      const int64_t stride = tensor.strides[heads];
      tensors_.k_elements = q_heads * stride;
      tensors_.v_elements = (q_heads + kv_heads) * stride;
    }
    return absl::OkStatus();
  }
};

}  // namespace

LayoutOrder OrderOf(v1::Layout layout) {
  switch (layout) {
    case v1::LAYOUT_BHSD:
      return {4, 0, 2, 1, 3, "[batch, heads, seqlen, head_dim] (BHSD)"};
    case v1::LAYOUT_THD:
      return {3, -1, 0, 1, 2, "[total tokens, heads, head_dim] (THD)"};
    default:
      return {4, 0, 1, 2, 3, "[batch, seqlen, heads, head_dim] (BSHD)"};
  }
}

absl::StatusOr<QkvTensors> ResolveQkv(const ParsedRequest& request,
                                      const Bounds& bounds) {
  return request.header.has_qkv() ? PackedResolver(request, bounds).Resolve()
                                  : SeparateResolver(request, bounds).Resolve();
}

}  // namespace attendant::server
