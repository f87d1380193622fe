#include "client/cpp/cli/reference_problem.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/cli/kernel_type.h"
#include "client/cpp/client_error.h"
#include "kernels/base/data_type.h"

namespace attendant::client::cli {
namespace {

using kernels::InputTensor;
using kernels::SequenceBounds;

struct Sizes {
  int64_t batch = 1, rows = 0, heads = 0, head_dim = 0;
};

// [batch, rows, heads, head_dim] of a contiguous tensor.
absl::Status ReadShape(const std::string& name, Layout layout,
                       const TensorView& tensor, Sizes* sizes,
                       InputTensor* view) {
  const std::vector<int64_t>& s = tensor.shape;
  const size_t rank = layout == Layout::kTHD ? 3 : 4;
  if (s.size() != rank || !tensor.strides.empty()) {
    return InvalidField(name + ".shape", absl::StrCat(s.size(), " sizes"),
                        absl::StrCat(rank, " sizes, contiguous"));
  }
  if (layout == Layout::kTHD) {
    *sizes = {1, s[0], s[1], s[2]};
  } else if (layout == Layout::kBSHD) {
    *sizes = {s[0], s[1], s[2], s[3]};
  } else {
    *sizes = {s[0], s[2], s[1], s[3]};
  }
  view->data = tensor.data;
  const bool heads_outside = layout == Layout::kBHSD;
  view->row_stride = sizes->head_dim * (heads_outside ? 1 : sizes->heads);
  view->head_stride = sizes->head_dim * (heads_outside ? sizes->rows : 1);
  view->batch_stride =
      layout == Layout::kTHD ? 0 : sizes->rows * sizes->heads * sizes->head_dim;
  return absl::OkStatus();
}

class Builder {
 public:
  Builder(const AttendArgs& args, DataType compute_dtype)
      : args_(args), compute_(ToKernelType(compute_dtype)) {}

  absl::StatusOr<ReferenceProblem> Build() {
    kernels::AttentionProblem& p = reference_.problem;
    p.dtype = compute_;
    absl::Status status = args_.qkv.given() ? ReadPacked() : ReadSeparate();
    if (!status.ok()) return status;
    status = SetSequences();
    if (!status.ok()) return status;
    SetOptions();
    status = SetMask();
    if (!status.ok()) return status;
    return std::move(reference_);
  }

 private:
  // The tensor in the compute dtype: itself, or a converted copy.
  TensorView Converted(const TensorView& tensor) {
    const kernels::DataType from = ToKernelType(tensor.dtype);
    if (from == compute_) return tensor;
    int64_t elements = 1;
    for (const int64_t size : tensor.shape) elements *= size;
    auto& memory = reference_.converted.emplace_back(
        std::make_unique<std::byte[]>(static_cast<size_t>(
            std::max<int64_t>(elements * kernels::SizeOf(compute_), 1))));
    for (int64_t e = 0; e < elements; ++e) {
      kernels::StoreFromFloat(memory.get(), compute_, e,
                              kernels::LoadAsFloat(tensor.data, from, e));
    }
    TensorView view = tensor;
    view.data = memory.get();
    return view;
  }

  void SetSizes(const Sizes& q, const Sizes& k, const Sizes& v) {
    kernels::AttentionProblem& p = reference_.problem;
    p.batch = q.batch;
    p.rows_q = q.rows;
    rows_k_ = k.rows;
    p.num_q_heads = p.whole_num_q_heads = q.heads;
    p.num_kv_heads = p.whole_num_kv_heads = k.heads;
    p.head_dim = q.head_dim;
    p.head_dim_v = v.head_dim;
  }

  absl::Status ReadSeparate() {
    kernels::AttentionProblem& p = reference_.problem;
    Sizes q, k, v;
    absl::Status status =
        ReadShape("q", args_.layout, Converted(args_.q), &q, &p.q);
    status.Update(ReadShape("k", args_.layout, Converted(args_.k), &k, &p.k));
    status.Update(ReadShape("v", args_.layout, Converted(args_.v), &v, &p.v));
    SetSizes(q, k, v);
    return status;
  }

  absl::Status ReadPacked() {
    kernels::AttentionProblem& p = reference_.problem;
    const TensorView qkv = Converted(args_.qkv);
    const bool thd = args_.layout == Layout::kTHD;
    const bool by_counts = args_.num_q_heads > 0;
    const size_t rank = (thd ? 3 : 4) + (by_counts ? 0 : 1);
    if (qkv.shape.size() != rank || args_.layout == Layout::kBHSD) {
      return InvalidField("qkv.shape", absl::StrCat(qkv.shape.size(), " sizes"),
                          absl::StrCat(rank, " sizes"));
    }
    const size_t row = thd ? 0 : 1;
    Sizes q{thd ? 1 : qkv.shape[0], qkv.shape[row], 0, qkv.shape.back()};
    q.heads = by_counts ? args_.num_q_heads : qkv.shape[rank - 2];
    Sizes k = q;
    k.heads = by_counts ? args_.num_kv_heads : q.heads;
    const int64_t row_stride = (q.heads + 2 * k.heads) * q.head_dim;
    const auto view = [&](int64_t first_head) {
      const int64_t offset =
          first_head * q.head_dim * kernels::SizeOf(compute_);
      return InputTensor{static_cast<const std::byte*>(qkv.data) + offset,
                         thd ? 0 : q.rows * row_stride, row_stride, q.head_dim};
    };
    p.q = view(0);
    p.k = view(q.heads);
    p.v = view(q.heads + k.heads);
    SetSizes(q, k, k);
    return absl::OkStatus();
  }

  absl::Status SetSequences() {
    kernels::AttentionProblem& p = reference_.problem;
    const bool thd = args_.layout == Layout::kTHD;
    const std::vector<int32_t>& cu_q = args_.cu_seqlens_q;
    const std::vector<int32_t>& cu_k =
        args_.cu_seqlens_k.empty() && args_.qkv.given() ? cu_q
                                                        : args_.cu_seqlens_k;
    if (thd) {
      if (cu_q.empty() || cu_q.size() != cu_k.size()) {
        return InvalidField("cu_seqlens_k", absl::StrCat(cu_k.size()),
                            absl::StrCat(cu_q.size(), " values, not 0"));
      }
      p.batch = static_cast<int64_t>(cu_q.size()) - 1;
    }
    const auto entry = [](const auto& list, int64_t b, int64_t otherwise) {
      return b < static_cast<int64_t>(list.size())
                 ? static_cast<int64_t>(list[static_cast<size_t>(b)])
                 : otherwise;
    };
    for (int64_t b = 0; b < p.batch; ++b) {
      SequenceBounds bounds;
      if (thd) {
        bounds.q_begin = entry(cu_q, b, 0);
        bounds.len_q = entry(cu_q, b + 1, 0) - bounds.q_begin;
        bounds.kv_begin = entry(cu_k, b, 0);
        bounds.len_kv = entry(cu_k, b + 1, 0) - bounds.kv_begin;
      } else {
        bounds.q_begin = entry(args_.starts_q, b, 0);
        bounds.len_q = entry(args_.seqlens_q, b, p.rows_q - bounds.q_begin);
        bounds.kv_begin = entry(args_.starts_k, b, 0);
        bounds.len_kv = entry(args_.seqlens_k, b, rows_k_ - bounds.kv_begin);
      }
      bounds.whole_len_q = bounds.len_q;
      if (args_.alignment == CausalAlignment::kBottomRight) {
        bounds.diagonal_shift = bounds.len_kv - bounds.len_q;
      }
      p.sequences.push_back(bounds);
    }
    return absl::OkStatus();
  }

  void SetOptions() {
    kernels::AttentionProblem& p = reference_.problem;
    p.softmax_scale = args_.softmax_scale.value_or(
        1 / std::sqrt(static_cast<float>(p.head_dim)));
    p.softcap = args_.softcap.value_or(0);
    p.causal = args_.causal;
    p.window_left = args_.window_left.value_or(kernels::kWindowOpen);
    p.window_right = args_.window_right.value_or(kernels::kWindowOpen);
    p.alibi_slopes = args_.alibi_slopes;
    const bool per_entry =
        static_cast<int64_t>(args_.alibi_slopes.size()) > p.num_q_heads;
    p.alibi_batch_stride = per_entry ? p.num_q_heads : 0;
    p.sinks = args_.sinks;
  }

  absl::Status SetMask() {
    if (!args_.mask.given()) return absl::OkStatus();
    const TensorView& mask = args_.mask;
    const std::vector<int64_t>& s = mask.shape;
    if (s.size() != 4 || !mask.strides.empty()) {
      return InvalidField("mask.shape", absl::StrCat(s.size(), " sizes"),
                          "4 sizes, contiguous");
    }
    kernels::MaskView& view = reference_.problem.mask;
    view.data = mask.data;
    view.padded_positions = args_.layout != Layout::kTHD;
    int64_t row = s[3];
    if (mask.dtype == DataType::kBool) {
      view.kind = kernels::MaskKind::kBoolBytes;
    } else if (mask.dtype == DataType::kBoolBits) {
      view.kind = kernels::MaskKind::kBoolBits;
      row = (row + 7) / 8;
    } else {
      view.kind = kernels::MaskKind::kAdditive;
      view.dtype = ToKernelType(mask.dtype);
    }
    view.row_stride = s[2] == 1 ? 0 : row;
    view.head_stride = s[1] == 1 ? 0 : row * s[2];
    view.batch_stride = s[0] == 1 ? 0 : row * s[2] * s[1];
    return absl::OkStatus();
  }

  const AttendArgs& args_;
  const kernels::DataType compute_;
  int64_t rows_k_ = 0;
  ReferenceProblem reference_;
};

}  // namespace

absl::StatusOr<ReferenceProblem> MakeReferenceProblem(const AttendArgs& args,
                                                      DataType compute_dtype) {
  return Builder(args, compute_dtype).Build();
}

}  // namespace attendant::client::cli
