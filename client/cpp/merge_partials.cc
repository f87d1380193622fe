#include "client/cpp/merge_partials.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cpp/client_error.h"

namespace attendant::client {
namespace {

constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();

std::string Text(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::Status Expect(const std::string& field, const TensorView& tensor,
                    const std::vector<int64_t>& shape) {
  if (tensor.dtype != DataType::kFloat32) {
    return InvalidField(field + ".dtype", Name(tensor.dtype), "fp32");
  }
  if (tensor.shape != shape) {
    return InvalidField(field + ".shape", Text(tensor.shape), Text(shape));
  }
  if (!tensor.strides.empty() &&
      tensor.strides != ContiguousStrides(tensor.dtype, tensor.shape)) {
    return InvalidField(field + ".strides", Text(tensor.strides), "contiguous");
  }
  return absl::OkStatus();
}

// [batch, heads, rows] of an O: sizes, and strides in rows of head_dim.
struct RowOrder {
  int64_t batch = 1, heads = 0, rows = 0, head_dim = 0;
  int64_t batch_stride = 0, head_stride = 0, row_stride = 0;

  std::vector<int64_t> lse_shape(Layout layout) const {
    if (layout == Layout::kTHD) return {heads, rows};
    return {batch, heads, rows};
  }
  // Calls visit(index of the row in LSE, its index in O, its head).
  template <typename Visit>
  void ForEachRow(Visit visit) const {
    int64_t lse_row = 0;
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t i = 0; i < rows; ++i) {
          visit(lse_row++, b * batch_stride + h * head_stride + i * row_stride,
                h);
        }
      }
    }
  }
};

absl::StatusOr<RowOrder> RowOrderOf(Layout layout, const std::string& field,
                                    const std::vector<int64_t>& shape) {
  const absl::StatusOr<int64_t> elements = NumElements(shape);
  if (!elements.ok()) return elements.status();
  const size_t rank = layout == Layout::kTHD ? 3 : 4;
  if (layout == Layout::kUnset) {
    return InvalidField("layout", Name(layout), "BSHD, BHSD or THD");
  }
  if (shape.size() != rank) {
    return InvalidField(field + ".shape", Text(shape),
                        absl::StrCat(rank, " sizes"));
  }
  RowOrder order;
  order.head_dim = shape[rank - 1];
  if (layout == Layout::kTHD) {
    order.rows = shape[0];
    order.heads = shape[1];
  } else {
    order.batch = shape[0];
    order.rows = layout == Layout::kBSHD ? shape[1] : shape[2];
    order.heads = layout == Layout::kBSHD ? shape[2] : shape[1];
  }
  const bool heads_outside = layout == Layout::kBHSD;
  order.row_stride = heads_outside ? 1 : order.heads;
  order.head_stride = heads_outside ? order.rows : 1;
  order.batch_stride = order.heads * order.rows;
  return order;
}

class RowMerger {
 public:
  RowMerger(std::span<const Partial> partials, int64_t head_dim)
      : partials_(partials), head_dim_(head_dim), sum_(head_dim) {}

  void Merge(int64_t lse_row, int64_t out_row, float* out, float* lse) {
    const Partial* alone = nullptr;
    int live = 0;
    float largest = kNegativeInfinity;
    for (const Partial& partial : partials_) {
      const float value = Lse(partial, lse_row);
      if (value == kNegativeInfinity) continue;
      alone = &partial;
      ++live;
      largest = std::max(largest, value);
    }
    float* out_values = out + out_row * head_dim_;
    if (live == 0) {
      std::fill_n(out_values, head_dim_, 0.0f);
      lse[lse_row] = kNegativeInfinity;
    } else if (live == 1) {
      std::copy_n(Out(*alone, out_row), head_dim_, out_values);
      lse[lse_row] = Lse(*alone, lse_row);
    } else {
      // std::max may drop a NaN; its weight keeps the row NaN.
      lse[lse_row] = Weigh(lse_row, out_row, largest, out_values);
    }
  }

 private:
  static float Lse(const Partial& partial, int64_t row) {
    return static_cast<const float*>(partial.lse.data)[row];
  }
  const float* Out(const Partial& partial, int64_t row) const {
    return static_cast<const float*>(partial.out.data) + row * head_dim_;
  }

  // Returns the row's LSE.
  float Weigh(int64_t lse_row, int64_t out_row, double largest, float* out) {
    std::fill(sum_.begin(), sum_.end(), 0.0);
    double weights = 0;
    for (const Partial& partial : partials_) {
      const float value = Lse(partial, lse_row);
      if (value == kNegativeInfinity) continue;
      const double weight = std::exp(value - largest);
      const float* values = Out(partial, out_row);
      weights += weight;
      for (int64_t d = 0; d < head_dim_; ++d) sum_[d] += weight * values[d];
    }
    for (int64_t d = 0; d < head_dim_; ++d) {
      out[d] = static_cast<float>(sum_[d] / weights);
    }
    return static_cast<float>(largest + std::log(weights));
  }

  std::span<const Partial> partials_;
  int64_t head_dim_;
  std::vector<double> sum_;
};

}  // namespace

absl::StatusOr<MergedPartials> MergePartials(
    Layout layout, std::span<const Partial> partials) {
  if (partials.empty()) return InvalidField("partials", "none", "at least one");
  const std::vector<int64_t>& shape = partials[0].out.shape;
  const absl::StatusOr<RowOrder> order =
      RowOrderOf(layout, "partials[0].out", shape);
  if (!order.ok()) return order.status();
  for (size_t p = 0; p < partials.size(); ++p) {
    const std::string field = absl::StrCat("partials[", p, "]");
    absl::Status status = Expect(field + ".out", partials[p].out, shape);
    status.Update(
        Expect(field + ".lse", partials[p].lse, order->lse_shape(layout)));
    if (!status.ok()) return status;
  }
  absl::StatusOr<Tensor> out = AllocateTensor(DataType::kFloat32, shape);
  if (!out.ok()) return out.status();
  absl::StatusOr<Tensor> lse =
      AllocateTensor(DataType::kFloat32, order->lse_shape(layout));
  if (!lse.ok()) return lse.status();
  RowMerger merger(partials, order->head_dim);
  order->ForEachRow([&](int64_t lse_row, int64_t out_row, int64_t) {
    merger.Merge(lse_row, out_row, out->as<float>(), lse->as<float>());
  });
  return MergedPartials{*std::move(out), *std::move(lse)};
}

absl::Status ApplySinks(Layout layout, std::span<const float> sinks,
                        Tensor& out, const Tensor& lse) {
  const absl::StatusOr<RowOrder> order = RowOrderOf(layout, "out", out.shape);
  if (!order.ok()) return order.status();
  absl::Status status = Expect("out", out.view(), out.shape);
  status.Update(Expect("lse", lse.view(), order->lse_shape(layout)));
  if (!status.ok()) return status;
  if (static_cast<int64_t>(sinks.size()) != order->heads) {
    return InvalidField("sinks", absl::StrCat(sinks.size(), " values"),
                        absl::StrCat(order->heads, ", one per query head"));
  }
  order->ForEachRow([&](int64_t lse_row, int64_t out_row, int64_t head) {
    const float row_lse = lse.as<float>()[lse_row];
    // -inf - -inf is NaN: a row or a head without anything stays as it is.
    if (row_lse == kNegativeInfinity || sinks[head] == kNegativeInfinity) {
      return;
    }
    const double share =
        1 / (1 + std::exp(static_cast<double>(sinks[head]) - row_lse));
    float* values = out.as<float>() + out_row * order->head_dim;
    for (int64_t d = 0; d < order->head_dim; ++d) {
      values[d] = static_cast<float>(values[d] * share);
    }
  });
  return absl::OkStatus();
}

}  // namespace attendant::client
