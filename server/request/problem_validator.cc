#include "server/request/problem_validator.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/request/errors.h"
#include "server/request/option_validator.h"
#include "server/request/qkv_tensors.h"
#include "server/request/sequence_layout.h"
#include "server/request/tensor_geometry.h"

namespace attendant::server {
namespace {

using kernels::AttentionProblem;

// Printable ASCII, at most `max_chars`.
absl::Status CheckText(const std::string& field, const std::string& text,
                       int64_t max_chars) {
  const std::string bound =
      absl::StrCat("at most ", max_chars, " printable ASCII characters");
  if (static_cast<int64_t>(text.size()) > max_chars) {
    return InvalidField(field, absl::StrCat(text.size(), " characters long"),
                        bound);
  }
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c <= 0x7e) continue;
    return InvalidField(field, absl::StrCat("text with byte ", c, " at ", i),
                        bound);
  }
  return absl::OkStatus();
}

// Walks the rules in the order of the proto file's fields; every step relies on
// those before it.
class RequestValidator {
 public:
  RequestValidator(const ParsedRequest& request, const Bounds& bounds,
                   const kernels::DeviceProperties& device)
      : request_(request),
        header_(request.header),
        bounds_(bounds),
        device_(device) {}

  absl::StatusOr<std::unique_ptr<ValidatedRequest>> Validate() {
    RETURN_IF_ERROR(CheckEnvelope());
    ASSIGN_OR_RETURN(tensors_, ResolveQkv(request_, bounds_));
    RETURN_IF_ERROR(ResolveTypes());
    TakeTensors();
    RETURN_IF_ERROR(ResolveLengths());
    RETURN_IF_ERROR(ApplyOptions(header_,
                                 std::max(layout_.mask_rows, layout_.mask_keys),
                                 result_.get()));
    RETURN_IF_ERROR(
        ApplyMask(request_, tensors_.dtype, layout_, bounds_, result_.get()));
    RETURN_IF_ERROR(ResolveOutput());
    RETURN_IF_ERROR(CheckWork());
    return std::move(result_);
  }

 private:
  AttentionProblem& problem() { return result_->problem; }

  // What is not about tensors.
  absl::Status CheckEnvelope() {
    RETURN_IF_ERROR(CheckText("request_id", header_.request_id(),
                              bounds_.max_request_id_chars));
    RETURN_IF_ERROR(CheckText("ordering_key", header_.ordering_key(),
                              bounds_.max_request_id_chars));
    if (header_.priority() < -100 || header_.priority() > 100) {
      return InvalidField("priority", absl::StrCat(header_.priority()),
                          "-100..100");
    }
    if (header_.dropout_p() != 0) {  // NaN too
      return UnimplementedField("dropout_p", absl::StrCat(header_.dropout_p()),
                                "0: dropout is not offered");
    }
    if (header_.has_output_region()) {
      RETURN_IF_ERROR(CheckRegionsServed("output_region", bounds_));
    }
    if (header_.has_lse_region()) {
      RETURN_IF_ERROR(CheckRegionsServed("lse_region", bounds_));
      if (!header_.return_lse()) {
        return InvalidField("lse_region", "set", "unset without return_lse");
      }
    }
    result_->request_id = header_.request_id();
    result_->ordering_key = header_.ordering_key();
    result_->priority = header_.priority();
    return absl::OkStatus();
  }

  // Input, compute and output dtypes.
  absl::Status ResolveTypes() {
    ASSIGN_OR_RETURN(wire_dtype_,
                     ElementType(tensors_.dtype_field, tensors_.dtype));
    kernels::DataType compute = wire_dtype_;
    if (header_.compute_dtype() != v1::DATA_TYPE_UNSPECIFIED) {
      ASSIGN_OR_RETURN(compute,
                       ElementType("compute_dtype", header_.compute_dtype()));
    }
    problem().dtype = compute;
    RETURN_IF_ERROR(CheckDeviceComputes());
    kernels::DataType output = wire_dtype_;
    if (header_.output_dtype() != v1::DATA_TYPE_UNSPECIFIED) {
      ASSIGN_OR_RETURN(output,
                       ElementType("output_dtype", header_.output_dtype()));
    }
    problem().output_dtype = output;
    if (output == compute || output == kernels::DataType::kFloat32) {
      return absl::OkStatus();
    }
    if (output != wire_dtype_) {
      return InvalidField(
          "output_dtype", DataTypeText(header_.output_dtype()),
          absl::StrCat("FP32, the input's ", DataTypeText(tensors_.dtype),
                       ", or ", DataTypeText(ToProto(compute)),
                       " that is computed in"));
    }
    result_->narrow_output_to = output;
    problem().output_dtype = kernels::DataType::kFloat32;
    return absl::OkStatus();
  }

  absl::Status CheckDeviceComputes() {
    std::string served;
    for (const kernels::DataType dtype :
         {kernels::DataType::kFloat32, kernels::DataType::kBFloat16,
          kernels::DataType::kFloat16}) {
      const bool computes = std::any_of(
          kernels::Kernels().begin(), kernels::Kernels().end(),
          [&](const kernels::KernelEntry& kernel) {
            const kernels::Capability& row = kernel.capability;
            return device_.compute_capability >= row.min_compute_capability &&
                   device_.compute_capability <= row.max_compute_capability &&
                   (dtype == kernels::DataType::kFloat32   ? row.fp32
                    : dtype == kernels::DataType::kFloat16 ? row.fp16
                                                           : row.bf16);
          });
      if (!computes) continue;
      if (dtype == problem().dtype) return absl::OkStatus();
      absl::StrAppend(&served, served.empty() ? "" : " or ",
                      DataTypeText(ToProto(dtype)));
    }
    const bool asked = header_.compute_dtype() != v1::DATA_TYPE_UNSPECIFIED;
    const std::string dtype = DataTypeText(ToProto(problem().dtype));
    return UnimplementedField(
        "compute_dtype",
        asked
            ? dtype
            : absl::StrCat("unset (", tensors_.dtype_field, " is ", dtype, ")"),
        absl::StrCat(served,
                     ", all that this device computes in: set compute_dtype "
                     "to allow the conversion"));
  }

  void TakeTensors() {
    AttentionProblem& p = problem();
    p.num_q_heads = p.whole_num_q_heads = tensors_.q.heads;
    p.num_kv_heads = p.whole_num_kv_heads = tensors_.k.heads;
    p.head_dim = tensors_.q.head_dim;
    p.head_dim_v = tensors_.v.head_dim;
    p.rows_q = tensors_.q.rows;
    p.q = tensors_.q.strides;
    p.k = tensors_.k.strides;
    p.v = tensors_.v.strides;
    int64_t offsets[3] = {};
    for (size_t i = 0; i < tensors_.parts.size(); ++i) {
      ValidatedRequest::Image image;
      image.field = tensors_.parts[i].field;
      image.from = wire_dtype_;
      image.to = p.dtype;
      image.wire_bytes = tensors_.parts[i].wire_bytes;
      offsets[i] = AddImage(image, result_.get());
    }
    if (tensors_.packed_qkv) {
      const int64_t element = kernels::SizeOf(p.dtype);
      offsets[1] = offsets[0] + tensors_.k_elements * element;
      offsets[2] = offsets[0] + tensors_.v_elements * element;
    }
    result_->q_offset = offsets[0];
    result_->k_offset = offsets[1];
    result_->v_offset = offsets[2];
  }

  absl::Status ResolveLengths() {
    StoredRows rows;
    rows.packed_rows = tensors_.layout == v1::LAYOUT_THD;
    rows.packed_qkv = tensors_.packed_qkv;
    rows.batch = tensors_.q.batch;
    rows.rows_q = tensors_.q.rows;
    rows.rows_kv = tensors_.k.rows;
    ASSIGN_OR_RETURN(layout_, ResolveSequences(header_, rows, bounds_));
    problem().batch = layout_.batch;
    problem().sequences = std::move(layout_.sequences);
    return absl::OkStatus();
  }

  absl::Status ResolveOutput() {
    AttentionProblem& p = problem();
    const QkvView& q = tensors_.q;
    const bool thd = tensors_.layout == v1::LAYOUT_THD;
    const int64_t stored_batch = thd ? 1 : q.batch;
    int64_t lines = stored_batch;  // head_dim_v each
    int64_t bytes = p.head_dim_v * kernels::SizeOf(p.output_dtype);
    int64_t lse_bytes = header_.return_lse() ? sizeof(float) : 0;
    int64_t total = 0;
    // What a region takes is bounded by the region.
    const auto inline_bytes = [&] {
      return total - (header_.has_output_region() ? bytes : 0) -
             (header_.has_lse_region() ? lse_bytes : 0);
    };
    if (__builtin_mul_overflow(lines, q.heads, &lines) ||
        __builtin_mul_overflow(lines, q.rows, &lines) ||
        __builtin_mul_overflow(bytes, lines, &bytes) ||
        __builtin_mul_overflow(lse_bytes, lines, &lse_bytes) ||
        __builtin_add_overflow(bytes, lse_bytes, &total) ||
        inline_bytes() > bounds_.max_response_bytes) {
      return InvalidField("",
                          absl::StrCat("a reply of ", lines, " output rows of ",
                                       p.head_dim_v, " entries"),
                          absl::StrCat("at most ", bounds_.max_response_bytes,
                                       " bytes (max_response_bytes)"));
    }
    result_->output_bytes = bytes;
    result_->lse_bytes = lse_bytes;
    if (header_.has_output_region()) {
      RETURN_IF_ERROR(CheckRegionLength("output_region",
                                        header_.output_region(),
                                        result_->wire_output_bytes(), bounds_));
    }
    if (header_.has_lse_region()) {
      RETURN_IF_ERROR(CheckRegionLength("lse_region", header_.lse_region(),
                                        lse_bytes, bounds_));
    }
    result_->lse_offset = AlignedToBlock(bytes);
    const bool heads_first = tensors_.layout == v1::LAYOUT_BHSD;
    p.out.row_stride = p.head_dim_v * (heads_first ? 1 : q.heads);
    p.out.head_stride = p.head_dim_v * (heads_first ? q.rows : 1);
    p.out.batch_stride = thd ? 0 : p.head_dim_v * q.heads * q.rows;
    p.lse_head_stride = q.rows;
    p.lse_batch_stride = thd ? 0 : q.heads * q.rows;
    DescribeOutput();
    return absl::OkStatus();
  }

  void DescribeOutput() {
    const LayoutOrder order = OrderOf(tensors_.layout);
    const QkvView& q = tensors_.q;
    v1::TensorSpec& output = result_->output_spec;
    output.set_dtype(
        ToProto(result_->narrow_output_to.value_or(problem().output_dtype)));
    output.set_layout(tensors_.layout);
    output.mutable_shape()->Resize(order.rank, q.batch);
    output.set_shape(order.rows, q.rows);
    output.set_shape(order.heads, q.heads);
    output.set_shape(order.head_dim, tensors_.v.head_dim);
    if (!header_.return_lse()) return;
    v1::TensorSpec& lse = result_->lse_spec;
    lse.set_dtype(v1::DATA_TYPE_FP32);
    if (order.batch >= 0) lse.add_shape(q.batch);
    lse.add_shape(q.heads);
    lse.add_shape(q.rows);
  }

  absl::Status CheckWork() {
    result_->flops = kernels::ForwardFlops(problem());
    if (result_->flops > bounds_.max_work_flops) {
      return InvalidField("", absl::StrCat("work of ", result_->flops, " FLOP"),
                          absl::StrCat("at most ", bounds_.max_work_flops,
                                       " FLOP (max_work_flops)"));
    }
    // A kernel's rule may look at alignment, so it gets to see pointers with
    // that of the images; blocks start at multiples of 256, and so does this.
    const auto at = [](int64_t offset) {
      return reinterpret_cast<std::byte*>(kBlockAlignment + offset);
    };
    AttentionProblem& p = problem();
    p.q.data = at(result_->q_offset);
    p.k.data = at(result_->k_offset);
    p.v.data = at(result_->v_offset);
    p.out.data = at(0);
    if (p.mask.kind != kernels::MaskKind::kNone) {
      p.mask.data = at(result_->mask_offset);
    }
    const auto kernel = kernels::FindKernel(device_, p);
    absl::Status found = kernel.status();
    if (kernel.ok()) p.kernel = (*kernel)->capability.kernel;
    p.q.data = p.k.data = p.v.data = p.mask.data = nullptr;
    p.out.data = nullptr;
    if (found.ok()) return found;
    return WithDetail(found, "", "this combination of sizes and options",
                      "one that a capability row of GetServerInfo serves");
  }

  const ParsedRequest& request_;
  const v1::AttendRequest& header_;
  const Bounds& bounds_;
  const kernels::DeviceProperties& device_;
  std::unique_ptr<ValidatedRequest> result_ =
      std::make_unique<ValidatedRequest>();

  QkvTensors tensors_;
  kernels::DataType wire_dtype_ = kernels::DataType::kFloat32;
  SequenceLayout layout_;
};

}  // namespace

int64_t AddImage(ValidatedRequest::Image image, ValidatedRequest* request) {
  image.block_offset = request->input_bytes;
  image.block_bytes = image.raw
                          ? image.wire_bytes
                          : image.wire_bytes / kernels::SizeOf(image.from) *
                                kernels::SizeOf(image.to);
  request->input_bytes = AlignedToBlock(image.block_offset + image.block_bytes);
  request->images.push_back(image);
  return image.block_offset;
}

kernels::AttentionProblem Placed(const ValidatedRequest& request,
                                 std::byte* input, std::byte* output) {
  kernels::AttentionProblem problem = request.problem;
  const auto place = [&](int64_t offset) {
    for (const ValidatedRequest::Image& image : request.images) {
      if (image.place.kernel_memory == nullptr || offset < image.block_offset ||
          offset >= image.block_offset + image.block_bytes) {
        continue;
      }
      return image.place.kernel_memory + (offset - image.block_offset);
    }
    return input + offset;
  };
  problem.q.data = place(request.q_offset);
  problem.k.data = place(request.k_offset);
  problem.v.data = place(request.v_offset);
  if (problem.mask.kind != kernels::MaskKind::kNone) {
    problem.mask.data = place(request.mask_offset);
  }
  problem.out.data = request.OutputIn(output);
  if (request.lse_bytes > 0) problem.lse = request.LseIn(output);
  return problem;
}

absl::StatusOr<std::unique_ptr<ValidatedRequest>> ValidateRequest(
    const ParsedRequest& request, const Bounds& bounds,
    const kernels::DeviceProperties& device) {
  return RequestValidator(request, bounds, device).Validate();
}

}  // namespace attendant::server
