#include "server/request/option_validator.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/request/errors.h"
#include "server/request/tensor_geometry.h"

namespace attendant::server {
namespace {

using kernels::AttentionProblem;
using kernels::MaskKind;

absl::Status ApplyScores(const v1::AttendRequest& request,
                         AttentionProblem* problem) {
  problem->softmax_scale = static_cast<float>(
      1.0 / std::sqrt(static_cast<double>(problem->head_dim)));
  if (request.has_softmax_scale()) {
    problem->softmax_scale = request.softmax_scale();
    if (!std::isfinite(problem->softmax_scale)) {
      return InvalidField("softmax_scale", absl::StrCat(problem->softmax_scale),
                          "finite");
    }
  }
  problem->softcap = request.softcap();
  if (!std::isfinite(problem->softcap) || problem->softcap < 0) {
    return InvalidField("softcap", absl::StrCat(problem->softcap),
                        "finite and at least 0");
  }
  // Scores within so small a cap are 0 to fp32; kernels divide by it.
  constexpr float kLeastSoftcap = 1e-18F;
  if (problem->softcap > 0) {
    problem->softcap = std::max(problem->softcap, kLeastSoftcap);
  }
  return absl::OkStatus();
}

absl::Status ApplyWindow(const v1::AttendRequest& request, int64_t longest,
                         AttentionProblem* problem) {
  const auto apply = [&](const std::string& field, bool present, int64_t value,
                         int64_t* window) {
    if (!present) return absl::OkStatus();
    if (value < 0) {
      return InvalidField(field, absl::StrCat(value),
                          "at least 0; unset means open");
    }
    *window = std::min(value, longest);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(apply("window_left", request.has_window_left(),
                        request.window_left(), &problem->window_left));
  return apply("window_right", request.has_window_right(),
               request.window_right(), &problem->window_right);
}

absl::Status ApplyAlibi(const v1::AttendRequest& request,
                        ValidatedRequest* result) {
  AttentionProblem& problem = result->problem;
  const int64_t size = request.alibi_slopes_size();
  if (size == 0) return absl::OkStatus();
  const int64_t heads = problem.num_q_heads;
  const bool per_batch =
      heads > 0 && size % heads == 0 && size / heads == problem.batch;
  if (size != heads && !per_batch) {
    return InvalidField("alibi_slopes", absl::StrCat(size, " entries"),
                        absl::StrCat(heads, " entries (heads of q), or ",
                                     problem.batch, " times that (batch)"));
  }
  for (int i = 0; i < size; ++i) {
    if (std::isfinite(request.alibi_slopes(i))) continue;
    return InvalidField(absl::StrCat("alibi_slopes[", i, "]"),
                        absl::StrCat(request.alibi_slopes(i)), "finite");
  }
  result->alibi_slopes.assign(request.alibi_slopes().begin(),
                              request.alibi_slopes().end());
  problem.alibi_slopes = result->alibi_slopes;
  problem.alibi_batch_stride = size == heads ? 0 : heads;
  return absl::OkStatus();
}

absl::Status ApplySinks(const v1::AttendRequest& request,
                        ValidatedRequest* result) {
  const int64_t size = request.sinks_size();
  if (size == 0) return absl::OkStatus();
  if (size != result->problem.num_q_heads) {
    return InvalidField("sinks", absl::StrCat(size, " entries"),
                        absl::StrCat(result->problem.num_q_heads,
                                     " entries (heads of q), or none"));
  }
  for (int i = 0; i < size; ++i) {
    const float sink = request.sinks(i);
    if (!std::isnan(sink) && sink != HUGE_VALF) continue;
    return InvalidField(absl::StrCat("sinks[", i, "]"), absl::StrCat(sink),
                        "finite or -inf");
  }
  result->sinks.assign(request.sinks().begin(), request.sinks().end());
  result->problem.sinks = result->sinks;
  return absl::OkStatus();
}

// What the mask's bytes are, on the wire and in the image.
absl::Status ApplyMaskType(v1::DataType dtype, v1::DataType input,
                           AttentionProblem* problem,
                           ValidatedRequest::Image* image) {
  image->field = TensorField::kMask;
  if (dtype == v1::DATA_TYPE_BOOL || dtype == v1::DATA_TYPE_BOOL_BITS) {
    problem->mask.kind = dtype == v1::DATA_TYPE_BOOL ? MaskKind::kBoolBytes
                                                     : MaskKind::kBoolBits;
    image->raw = true;
    return absl::OkStatus();
  }
  if (dtype != v1::DATA_TYPE_FP32 && dtype != input) {
    const std::string bound = absl::StrCat(
        "BOOL, BOOL_BITS, FP32 or the input's ", DataTypeText(input));
    const bool known = dtype == v1::DATA_TYPE_UNSPECIFIED ||
                       dtype == v1::DATA_TYPE_FP16 ||
                       dtype == v1::DATA_TYPE_BF16;
    return known ? InvalidField("mask.dtype", DataTypeText(dtype), bound)
                 : UnimplementedField("mask.dtype", DataTypeText(dtype), bound);
  }
  ASSIGN_OR_RETURN(image->from, ElementType("mask.dtype", dtype));
  // Kernels read a mask in fp32 or in the dtype they compute in.
  image->to =
      image->from == problem->dtype ? image->from : kernels::DataType::kFloat32;
  problem->mask.kind = MaskKind::kAdditive;
  problem->mask.dtype = image->to;
  return absl::OkStatus();
}

absl::Status CheckMaskShape(const TensorGeometry& mask,
                            const SequenceLayout& layout, int64_t heads) {
  const int64_t whole[] = {layout.batch, heads, layout.mask_rows,
                           layout.mask_keys};
  constexpr const char* kNames[] = {"batch", "heads of q", "seqlen_q",
                                    "seqlen_k"};
  for (int i = 0; i < 4; ++i) {
    const int64_t size = mask.sizes[i];
    if (size == whole[i] || (size == 1 && i < 3)) continue;
    return InvalidField(
        ShapeField("mask", i), absl::StrCat(size),
        absl::StrCat(whole[i], " (", kNames[i], ")", i < 3 ? " or 1" : ""));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ApplyOptions(const v1::AttendRequest& request, int64_t longest,
                          ValidatedRequest* result) {
  AttentionProblem& problem = result->problem;
  problem.causal = request.causal();
  RETURN_IF_ERROR(ApplyScores(request, &problem));
  RETURN_IF_ERROR(ApplyWindow(request, longest, &problem));
  RETURN_IF_ERROR(ApplyAlibi(request, result));
  return ApplySinks(request, result);
}

absl::Status ApplyMask(const ParsedRequest& request, v1::DataType input,
                       const SequenceLayout& layout, const Bounds& bounds,
                       ValidatedRequest* result) {
  const auto& extent = request.tensors[static_cast<int>(TensorField::kMask)];
  if (!request.header.has_mask()) {
    if (extent.bytes <= 0) return absl::OkStatus();
    return InvalidField("mask_data", absl::StrCat(extent.bytes, " bytes"),
                        "absent without mask");
  }
  const v1::TensorSpec& spec = request.header.mask();
  AttentionProblem& problem = result->problem;
  ValidatedRequest::Image image;
  RETURN_IF_ERROR(ApplyMaskType(spec.dtype(), input, &problem, &image));
  if (spec.layout() != v1::LAYOUT_UNSPECIFIED &&
      spec.layout() != v1::LAYOUT_BHSD) {
    return InvalidField(
        "mask.layout", absl::StrCat(static_cast<int>(spec.layout())),
        "BHSD or unset: [batch, heads, seqlen_q, seqlen_k] always");
  }
  ASSIGN_OR_RETURN(
      const TensorGeometry mask,
      ResolveGeometry("mask", spec, 4, "[batch, heads, seqlen_q, seqlen_k]",
                      bounds));
  RETURN_IF_ERROR(CheckMaskShape(mask, layout, problem.num_q_heads));
  RETURN_IF_ERROR(CheckWireBytes("mask", spec, extent, mask.wire_bytes));
  const int64_t entries = problem.mask.kind == MaskKind::kBoolBits ? 8 : 1;
  const auto stride = [&](int i) {
    return mask.sizes[i] <= 1 ? 0 : mask.strides[i] / entries;
  };
  problem.mask.batch_stride = stride(0);
  problem.mask.head_stride = stride(1);
  problem.mask.row_stride = stride(2);
  problem.mask.padded_positions = request.header.cu_seqlens_q_size() == 0;
  image.wire_bytes = mask.wire_bytes;
  result->mask_offset = AddImage(image, result);
  return absl::OkStatus();
}

}  // namespace attendant::server
