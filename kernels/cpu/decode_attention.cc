#include "kernels/cpu/decode_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/mask_access.h"

namespace attendant::kernels::cpu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

int64_t Padded(int64_t dims) {
  return (dims + kLanePadding - 1) / kLanePadding * kLanePadding;
}

class DecodeRun {
 public:
  DecodeRun(const SimdKernels& simd, const AttentionTask& task, float* scratch)
      : simd_(simd),
        kernels_(task.problem->dtype == DataType::kBFloat16 ? simd.decode_bf16
                                                            : simd.decode),
        task_(task),
        problem_(*task.problem),
        sequence_(task.sequence()),
        rows_(static_cast<int>(task.row_end - task.row_begin)),
        q_pitch_(Padded(problem_.head_dim)),
        o_pitch_(Padded(problem_.head_dim_v)),
        q_(scratch),
        o_(q_ + kMaxDecodeRows * q_pitch_),
        s_(o_ + kMaxDecodeRows * o_pitch_),
        bias_(s_ + kMaxDecodeRows * kDecodeBlock) {}

  void Run() {
    if (kernels_.begin != nullptr) kernels_.begin();
    AllBlocks();
    if (kernels_.end != nullptr) kernels_.end();
    for (int r = 0; r < rows_; ++r) {
      FinishRow(simd_, task_, task_.row_begin + r, o_ + r * o_pitch_, max_[r],
                sum_[r]);
    }
  }

 private:
  void AllBlocks() {
    KeyRange all{task_.key_end, task_.key_begin};
    for (int r = 0; r < rows_; ++r) {
      StartRow(r);
      if (range_[r].begin >= range_[r].end) continue;
      all.begin = std::min(all.begin, range_[r].begin);
      all.end = std::max(all.end, range_[r].end);
    }
    if (all.begin >= all.end) return;
    int64_t block = task_.key_begin +
                    (all.begin - task_.key_begin) / kDecodeBlock * kDecodeBlock;
    for (; block < all.end && !task_.IsUnwanted(); block += kDecodeBlock) {
      Step(block,
           static_cast<int>(std::min<int64_t>(all.end - block, kDecodeBlock)));
    }
  }

  const char* RowOf(const InputTensor& tensor, int64_t row,
                    int64_t head) const {
    return static_cast<const char*>(tensor.data) +
           (task_.b * tensor.batch_stride + row * tensor.row_stride +
            head * tensor.head_stride) *
               SizeOf(problem_.dtype);
  }

  void StartRow(int r) {
    const int64_t row = task_.row_begin + r;
    const int64_t query_row = task_.query_row(row);
    std::fill_n(q_ + r * q_pitch_, q_pitch_, 0.0f);
    simd_.to_float(
        RowOf(problem_.q, sequence_.q_begin + query_row, task_.query_head(row)),
        problem_.dtype, problem_.head_dim, q_ + r * q_pitch_);
    std::fill_n(o_ + r * o_pitch_, o_pitch_, 0.0f);
    max_[r] = kMinusInfinity;
    sum_[r] = 0.0f;
    range_[r] = VisibleKeys(problem_, sequence_, query_row);
    range_[r].begin = std::max(range_[r].begin, task_.key_begin);
    range_[r].end = std::min(range_[r].end, task_.key_end);
  }

  void Step(int64_t first, int count) {
    kernels_.scores(
        {.q = q_,
         .q_pitch = q_pitch_,
         .rows = rows_,
         .k = RowOf(problem_.k, sequence_.kv_begin + first, task_.kv_head),
         .dtype = problem_.dtype,
         .k_pitch = problem_.k.row_stride,
         .num_keys = count,
         .head_dim = problem_.head_dim,
         .scale = problem_.softmax_scale,
         .s = s_});
    for (int r = 0; r < rows_; ++r) {
      MaskRow(r, first, count);
      kernels_.softmax({.s = s_ + r * kDecodeBlock,
                        .num_keys = count,
                        .row_max = &max_[r],
                        .row_sum = &sum_[r],
                        .alpha = &alpha_[r]});
    }
    const bool finite = kernels_.values(
        {.p = s_,
         .rows = rows_,
         .v = RowOf(problem_.v, sequence_.kv_begin + first, task_.kv_head),
         .dtype = problem_.dtype,
         .v_pitch = problem_.v.row_stride,
         .num_keys = count,
         .head_dim_v = problem_.head_dim_v,
         .alpha = alpha_,
         .o = o_,
         .o_pitch = o_pitch_});
    if (!finite) AddValuesThatAreNotFinite(first, count);
  }

  void MaskRow(int r, int64_t first, int count) {
    const auto relative = [&](int64_t key) {
      return static_cast<int32_t>(std::clamp<int64_t>(key - first, 0, count));
    };
    const int32_t lo = relative(range_[r].begin);
    const int32_t hi = relative(range_[r].end);
    const bool general = HasGeneralScores(problem_);
    if (!general && lo == 0 && hi == count && count % kLanePadding == 0) {
      return;
    }
    const int64_t row = task_.row_begin + r;
    const bool has_bias = problem_.mask.kind != MaskKind::kNone;
    if (has_bias) FillBias(row, first, lo, hi);
    kernels_.mask(
        {.s = s_ + r * kDecodeBlock,
         .num_keys = count,
         .lo = lo,
         .hi = hi,
         .general = general,
         .softcap = problem_.softcap,
         .slope = SlopeOf(task_, row),
         .diagonal = static_cast<int32_t>(task_.query_row(row) +
                                          sequence_.diagonal_shift - first),
         .bias = has_bias ? bias_ : nullptr,
         .bias_is_boolean = problem_.mask.kind != MaskKind::kAdditive});
  }

  void FillBias(int64_t row, int64_t first, int32_t lo, int32_t hi) {
    const int64_t row_start = MaskRowStart(task_, row);
    std::fill_n(bias_, kDecodeBlock, 0.0f);
    for (int32_t n = lo; n < hi; ++n) {
      bias_[n] = MaskBias(problem_.mask, row_start, MaskKey(task_, first + n));
    }
  }

  // They counted as 0, so rows that do not see them have lost nothing.
  void AddValuesThatAreNotFinite(int64_t first, int count) {
    for (int n = 0; n < count; ++n) {
      const char* row =
          RowOf(problem_.v, sequence_.kv_begin + first + n, task_.kv_head);
      for (int64_t d = 0; d < problem_.head_dim_v; ++d) {
        const float value = LoadAsFloat(row, problem_.dtype, d);
        if (std::isfinite(value)) continue;
        for (int r = 0; r < rows_; ++r) {
          if (!IsVisible(task_, task_.row_begin + r, first + n)) continue;
          o_[r * o_pitch_ + d] += s_[r * kDecodeBlock + n] * value;
        }
      }
    }
  }

  const SimdKernels& simd_;
  const DecodeKernels& kernels_;
  const AttentionTask& task_;
  const AttentionProblem& problem_;
  const SequenceBounds& sequence_;
  const int rows_;
  const int64_t q_pitch_, o_pitch_;
  float* const q_;     // [rows][q_pitch_]
  float* const o_;     // [rows][o_pitch_]
  float* const s_;     // [rows][kDecodeBlock]
  float* const bias_;  // [kDecodeBlock]
  float max_[kMaxDecodeRows], sum_[kMaxDecodeRows], alpha_[kMaxDecodeRows];
  KeyRange range_[kMaxDecodeRows];
};

}  // namespace

int64_t DecodeScratchFloats(const AttentionProblem& problem) {
  return kMaxDecodeRows *
             (Padded(problem.head_dim) + Padded(problem.head_dim_v)) +
         (kMaxDecodeRows + 1) * kDecodeBlock;
}

void DecodeAttention(const SimdKernels& simd, const AttentionTask& task,
                     float* scratch) {
  DecodeRun(simd, task, scratch).Run();
}

}  // namespace attendant::kernels::cpu
