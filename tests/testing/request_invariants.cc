#include "tests/testing/request_invariants.h"

#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "server/request/errors.h"
#include "tests/testing/wire_bytes.h"

namespace attendant::testing {
namespace {

using kernels::AttentionProblem;
using kernels::MaskKind;
using kernels::SequenceBounds;
using kernels::SizeOf;
using server::ValidatedRequest;
__extension__ using Wide = __int128;  // no sum below can overflow

// One past the last element that [0, rows) x heads x dim of a view reaches.
template <typename View>
Wide End(const View& view, int64_t b, int64_t rows, int64_t heads,
         int64_t dim) {
  if (rows == 0 || heads == 0) return 0;
  return Wide{b} * view.batch_stride + Wide{rows - 1} * view.row_stride +
         Wide{heads - 1} * view.head_stride + dim;
}

std::string ImageViolation(const ValidatedRequest& request) {
  int64_t end = 0;
  for (const ValidatedRequest::Image& image : request.images) {
    if (image.block_offset % 256 != 0) return "an image is not aligned";
    if (image.block_offset < end) return "images overlap";
    const int64_t expected =
        image.raw ? image.wire_bytes
                  : image.wire_bytes / SizeOf(image.from) * SizeOf(image.to);
    if (image.block_bytes != expected) return "an image has another size";
    end = image.block_offset + image.block_bytes;
  }
  return end <= request.input_bytes ? "" : "images beyond the input block";
}

// The end of the image that `offset` lies in.
int64_t ImageEnd(const ValidatedRequest& request, int64_t offset) {
  int64_t end = 0;
  for (const ValidatedRequest::Image& image : request.images) {
    if (image.block_offset <= offset) {
      end = image.block_offset + image.block_bytes;
    }
  }
  return end;
}

std::string MaskViolation(const ValidatedRequest& request, int64_t b,
                          const SequenceBounds& s) {
  const AttentionProblem& p = request.problem;
  if (p.mask.kind == MaskKind::kNone || s.len_q == 0 || s.len_kv == 0 ||
      p.num_q_heads == 0) {
    return "";
  }
  const bool padded = p.mask.padded_positions;
  const int64_t rows = s.len_q + (padded ? s.q_begin : 0);
  int64_t keys = s.len_kv + (padded ? s.kv_begin : 0);
  if (p.mask.kind == MaskKind::kBoolBits) keys = (keys + 7) / 8;
  const int64_t entry =
      p.mask.kind == MaskKind::kAdditive ? SizeOf(p.mask.dtype) : 1;
  const Wide end = End(p.mask, b, rows, p.num_q_heads, keys) * entry;
  return request.mask_offset + end <= ImageEnd(request, request.mask_offset)
             ? ""
             : "mask beyond its image";
}

std::string SequenceViolation(const ValidatedRequest& request, int64_t b,
                              const SequenceBounds& s) {
  const AttentionProblem& p = request.problem;
  if (s.q_begin < 0 || s.len_q < 0 || s.kv_begin < 0 || s.len_kv < 0 ||
      s.whole_len_q != s.len_q) {
    return "a sequence is negative";
  }
  if (s.diagonal_shift != 0 && s.diagonal_shift != s.len_kv - s.len_q) {
    return "the diagonal is neither";
  }
  const int64_t rows_q = s.len_q == 0 ? 0 : s.q_begin + s.len_q;
  const int64_t rows_kv = s.len_kv == 0 ? 0 : s.kv_begin + s.len_kv;
  if (rows_q > p.rows_q) return "queries beyond the stored rows";
  const int64_t element = SizeOf(p.dtype);
  const auto inside = [&](int64_t offset, Wide end) {
    return end == 0 || offset + end * element <= ImageEnd(request, offset);
  };
  if (!inside(request.q_offset,
              End(p.q, b, rows_q, p.num_q_heads, p.head_dim))) {
    return "q beyond its image";
  }
  // Without queries nothing of k and v is read.
  if (s.len_q > 0 && p.num_q_heads > 0) {
    if (!inside(request.k_offset,
                End(p.k, b, rows_kv, p.num_kv_heads, p.head_dim))) {
      return "k beyond its image";
    }
    if (!inside(request.v_offset,
                End(p.v, b, rows_kv, p.num_kv_heads, p.head_dim_v))) {
      return "v beyond its image";
    }
  }
  const Wide out = End(p.out, b, rows_q, p.num_q_heads, p.head_dim_v);
  if (out * SizeOf(p.output_dtype) > request.output_bytes) {
    return "O beyond the output block";
  }
  if (request.lse_bytes > 0 && rows_q > 0 && p.num_q_heads > 0) {
    const Wide lse = Wide{b} * p.lse_batch_stride +
                     Wide{p.num_q_heads - 1} * p.lse_head_stride + rows_q;
    if (lse * 4 > request.lse_bytes) return "LSE beyond the output block";
  }
  return MaskViolation(request, b, s);
}

std::string* DataOf(const std::string& field, v1::AttendRequest* request) {
  if (field == "q_data") return request->mutable_q_data();
  if (field == "k_data") return request->mutable_k_data();
  if (field == "v_data") return request->mutable_v_data();
  if (field == "qkv_data") return request->mutable_qkv_data();
  if (field == "mask_data") return request->mutable_mask_data();
  return nullptr;
}

}  // namespace

std::string InvariantViolation(const ValidatedRequest& request) {
  const AttentionProblem& p = request.problem;
  if (std::string bad = ImageViolation(request); !bad.empty()) return bad;
  if (p.q.data != nullptr || p.mask.data != nullptr || p.lse != nullptr) {
    return "a pointer is left";
  }
  if (p.head_dim < 1 || p.head_dim > 256 || p.head_dim_v < 1 ||
      p.head_dim_v > 256) {
    return "head_dim";
  }
  if (p.num_q_heads > 0 &&
      (p.num_kv_heads < 1 || p.num_q_heads % p.num_kv_heads != 0)) {
    return "heads do not divide";
  }
  if (!std::isfinite(p.softmax_scale) || !std::isfinite(p.softcap) ||
      p.softcap < 0 || p.window_left < -1 || p.window_right < -1) {
    return "an option is out of range";
  }
  const auto slopes = static_cast<int64_t>(p.alibi_slopes.size());
  if (slopes != 0 && p.batch > 0 &&
      slopes < (p.batch - 1) * p.alibi_batch_stride + p.num_q_heads) {
    return "slopes are missing";
  }
  if (request.lse_bytes > 0 && request.lse_offset < request.output_bytes) {
    return "LSE overlaps O";
  }
  if (p.sequences.size() == 1) {
    return p.batch == 0
               ? ""
               : SequenceViolation(request, p.batch - 1, p.sequences[0]);
  }
  if (static_cast<int64_t>(p.sequences.size()) != p.batch) {
    return "sequences are missing";
  }
  for (int64_t b = 0; b < p.batch; ++b) {
    std::string bad = SequenceViolation(request, b, p.sequences[b]);
    if (!bad.empty()) return bad;
  }
  return "";
}

absl::StatusOr<std::unique_ptr<ValidatedRequest>> ValidateFitted(
    v1::AttendRequest request, size_t max_bytes) {
  for (int fits = 0;; ++fits) {
    const auto parsed = Parse(request);
    if (!parsed.ok()) return parsed.status();
    auto validated = server::ValidateRequest(*parsed, server::Bounds(), {});
    if (validated.ok()) return validated;
    const auto detail = server::DetailOf(validated.status());
    size_t bytes = 0;
    std::string* data =
        detail.has_value() ? DataOf(detail->field(), &request) : nullptr;
    if (data == nullptr || fits == server::kNumTensorFields ||
        std::sscanf(detail->bound().c_str(), "exactly the %zu", &bytes) != 1 ||
        bytes > max_bytes) {
      return validated;
    }
    data->resize(bytes);
  }
}

}  // namespace attendant::testing
