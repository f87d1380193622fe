#include "kernels/cpu/decode_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/mask_access.h"

namespace attendant::kernels::cpu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

int64_t Padded(int64_t dims) {
  return (dims + kLanePadding - 1) / kLanePadding * kLanePadding;
}

int64_t HeadScratchFloats(const AttentionProblem& problem) {
  return kMaxDecodeRows *
             (Padded(problem.head_dim) + Padded(problem.head_dim_v)) +
         (kMaxDecodeRows + 1) * kDecodeBlock + kLanePadding;
}

// One KV head and its rows of Q.
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
        bias_(s_ + kMaxDecodeRows * kDecodeBlock),
        alpha_(bias_ + kDecodeBlock) {}

  const DecodeKernels& kernels() const { return kernels_; }

  // The keys that some row sees; none if begin >= end.
  KeyRange Start() {
    KeyRange all{task_.key_end, task_.key_begin};
    for (int r = 0; r < rows_; ++r) {
      StartRow(r);
      if (range_[r].begin >= range_[r].end) continue;
      all.begin = std::min(all.begin, range_[r].begin);
      all.end = std::max(all.end, range_[r].end);
    }
    return all;
  }

  // Scores of keys [block, block + count) for this head and those after it.
  void Scores(int64_t block, int count, int heads) {
    kernels_.scores({.q = q_,
                     .q_pitch = q_pitch_,
                     .rows = rows_,
                     .k = KeyRow(block),
                     .dtype = problem_.dtype,
                     .k_pitch = problem_.k.row_stride,
                     .num_keys = count,
                     .head_dim = problem_.head_dim,
                     .scale = problem_.softmax_scale,
                     .s = s_,
                     .heads = {heads, problem_.k.head_stride,
                               HeadScratchFloats(problem_)}});
  }

  void Softmax(int64_t block, int count) {
    for (int r = 0; r < rows_; ++r) {
      MaskRow(r, block, count);
      kernels_.softmax({.s = s_ + r * kDecodeBlock,
                        .num_keys = count,
                        .row_max = &max_[r],
                        .row_sum = &sum_[r],
                        .alpha = &alpha_[r]});
    }
  }

  // False if some V was not finite.
  bool Values(int64_t block, int count, int heads) {
    return kernels_.values({.p = s_,
                            .rows = rows_,
                            .v = ValueRow(block),
                            .dtype = problem_.dtype,
                            .v_pitch = problem_.v.row_stride,
                            .num_keys = count,
                            .head_dim_v = problem_.head_dim_v,
                            .alpha = alpha_,
                            .o = o_,
                            .o_pitch = o_pitch_,
                            .heads = {heads, problem_.v.head_stride,
                                      HeadScratchFloats(problem_)}});
  }

  // They counted as 0, so rows that do not see them have lost nothing.
  void AddValuesThatAreNotFinite(int64_t first, int count) {
    for (int n = 0; n < count; ++n) {
      const char* row = ValueRow(first + n);
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

  void Finish() const {
    for (int r = 0; r < rows_; ++r) {
      FinishRow(simd_, task_, task_.row_begin + r, o_ + r * o_pitch_, max_[r],
                sum_[r]);
    }
  }

  const char* KeyRow(int64_t key) const {
    return RowOf(problem_.k, sequence_.kv_begin + key, task_.kv_head);
  }
  const char* ValueRow(int64_t key) const {
    return RowOf(problem_.v, sequence_.kv_begin + key, task_.kv_head);
  }

 private:
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

  const SimdKernels& simd_;
  const DecodeKernels& kernels_;
  const AttentionTask& task_;
  const AttentionProblem& problem_;
  const SequenceBounds& sequence_;
  const int rows_;
  const int64_t q_pitch_, o_pitch_;
  float* const q_;      // [rows][q_pitch_]
  float* const o_;      // [rows][o_pitch_]
  float* const s_;      // [rows][kDecodeBlock]
  float* const bias_;   // [kDecodeBlock]
  float* const alpha_;  // [rows]
  float max_[kMaxDecodeRows], sum_[kMaxDecodeRows];
  KeyRange range_[kMaxDecodeRows];
};

// KV heads that lie side by side go through K and V together, so that memory
// is read in its order. Operations and bits of each head are those it has
// alone.
class HeadsRun {
 public:
  HeadsRun(const SimdKernels& simd, std::span<const AttentionTask> tasks,
           float* scratch)
      : task_(tasks[0]), problem_(*task_.problem) {
    runs_.reserve(tasks.size());
    for (const AttentionTask& task : tasks) {
      runs_.emplace_back(simd, task, scratch);
      scratch += HeadScratchFloats(problem_);
    }
  }

  void Run() {
    const DecodeKernels& kernels = runs_[0].kernels();
    if (kernels.begin != nullptr) kernels.begin();
    AllBlocks();
    if (kernels.end != nullptr) kernels.end();
    for (const DecodeRun& run : runs_) run.Finish();
  }

 private:
  void AllBlocks() {
    KeyRange all{0, 0};  // the same for all heads
    for (DecodeRun& run : runs_) all = run.Start();
    if (all.begin >= all.end) return;
    int64_t block = task_.key_begin +
                    (all.begin - task_.key_begin) / kDecodeBlock * kDecodeBlock;
    for (; block < all.end && !task_.IsUnwanted(); block += kDecodeBlock) {
      const int count =
          static_cast<int>(std::min<int64_t>(all.end - block, kDecodeBlock));
      Block(block, count);
    }
  }

  void Block(int64_t block, int count) {
    const int all = static_cast<int>(runs_.size());
    runs_[0].Scores(block, count, all);
    for (DecodeRun& run : runs_) run.Softmax(block, count);
    if (runs_[0].Values(block, count, all)) return;
    for (DecodeRun& run : runs_) run.AddValuesThatAreNotFinite(block, count);
  }

  const AttentionTask& task_;
  const AttentionProblem& problem_;
  std::vector<DecodeRun> runs_;
};

}  // namespace

int64_t DecodeScratchFloats(const AttentionProblem& problem, int64_t heads) {
  return heads * HeadScratchFloats(problem);
}

void DecodeAttention(const SimdKernels& simd,
                     std::span<const AttentionTask> tasks, float* scratch) {
  HeadsRun(simd, tasks, scratch).Run();
}

}  // namespace attendant::kernels::cpu
