#include "kernels/cpu/tile_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/mask_access.h"
#include "kernels/cpu/tile_layout.h"

namespace attendant::kernels::cpu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

class TileRun {
 public:
  TileRun(const SimdKernels& simd, const AttentionTask& task,
          int64_t rows_per_task, float* scratch)
      : simd_(simd),
        kernels_(task.problem->dtype == DataType::kBFloat16 ? simd.tile_bf16
                                                            : simd.tile_fp32),
        task_(task),
        problem_(*task.problem),
        sequence_(task.sequence()),
        layout_(problem_, rows_per_task),
        tile_rows_(kMaxVecs * kernels_.lanes),
        head_dim_(AlignUp(problem_.head_dim, kernels_.dim_step)),
        num_panels_((problem_.head_dim_v + kernels_.panel - 1) /
                    kernels_.panel),
        panel_pitch_(kKeyBlock * kernels_.panel +
                     kPanelGap / (kernels_.bf16_operands ? 2 : 4)),
        next_(scratch) {
    k_pack_ = Take(layout_.k_pack);
    v_pack_ = Take(layout_.v_pack);
    s_ = Take(layout_.s);
    bias_ = Take(layout_.bias);
    staging_ = Take(layout_.staging);
    alpha_ = Take(layout_.per_row);
    block_max_ = Take(layout_.per_row);
    slopes_ = Take(layout_.per_row);
    lo_ = reinterpret_cast<int32_t*>(Take(layout_.per_row));
    hi_ = reinterpret_cast<int32_t*>(Take(layout_.per_row));
    diagonal_ = reinterpret_cast<int32_t*>(Take(layout_.per_row));
    tiles_ = next_;
    if (kernels_.begin != nullptr) kernels_.begin();
  }
  ~TileRun() {
    if (kernels_.end != nullptr) kernels_.end();
  }
  TileRun(const TileRun&) = delete;
  TileRun& operator=(const TileRun&) = delete;

  // Rows from first_row on, as many as the tiles hold; returns their number.
  int64_t Run(int64_t first_row) {
    next_ = tiles_;
    num_tiles_ = 0;
    int64_t r = first_row;
    for (; num_tiles_ < layout_.tiles && r < task_.row_end;
         r += tile_rows_, ++num_tiles_) {
      StartTile(r, tile_[num_tiles_]);
    }
    Keys();
    for (int i = 0; i < num_tiles_; ++i) FinishTile(tile_[i]);
    return std::min(r, task_.row_end) - first_row;
  }

 private:
  static constexpr int kMaxTiles = 4;

  float* Take(int64_t floats) {
    float* taken = next_;
    next_ += floats;
    return taken;
  }

  const char* RowOf(const InputTensor& tensor, int64_t row,
                    int64_t head) const {
    return static_cast<const char*>(tensor.data) +
           (task_.b * tensor.batch_stride + row * tensor.row_stride +
            head * tensor.head_stride) *
               SizeOf(problem_.dtype);
  }
  const char* KeyRow(int64_t key) const {
    return RowOf(problem_.k, sequence_.kv_begin + key, task_.kv_head);
  }
  const char* ValueRow(int64_t key) const {
    return RowOf(problem_.v, sequence_.kv_begin + key, task_.kv_head);
  }

  void StartTile(int64_t first_row, Tile& tile) {
    tile.first_row = first_row;
    tile.rows = static_cast<int>(
        std::min<int64_t>(tile_rows_, task_.row_end - first_row));
    tile.vecs = (tile.rows + kernels_.lanes - 1) / kernels_.lanes;
    tile.q = Take(layout_.q_pitch);
    tile.o = Take(layout_.o_pitch);
    tile.max = Take(layout_.per_row);
    tile.sum = Take(layout_.per_row);
    PackQ(tile);
    const int64_t lanes = tile.vecs * kernels_.lanes;
    std::fill_n(tile.o, num_panels_ * kernels_.panel * lanes, 0.0f);
    std::fill_n(tile.max, lanes, kMinusInfinity);
    std::fill_n(tile.sum, lanes, 0.0f);
    tile.key_begin = task_.key_end;
    tile.key_end = task_.key_begin;
    for (int i = 0; i < tile.rows; ++i) {
      const KeyRange range = RowKeys(tile, i);
      if (range.begin >= range.end) continue;
      tile.key_begin = std::min(tile.key_begin, range.begin);
      tile.key_end = std::max(tile.key_end, range.end);
    }
  }

  // Of the task's keys.
  KeyRange RowKeys(const Tile& tile, int i) const {
    KeyRange range =
        VisibleKeys(problem_, sequence_, task_.query_row(tile.first_row + i));
    range.begin = std::max(range.begin, task_.key_begin);
    range.end = std::min(range.end, task_.key_end);
    return range;
  }

  // Q transposed: rows side by side. bf16 operands: pairs of dims.
  void PackQ(const Tile& tile) {
    const int64_t lanes = tile.vecs * kernels_.lanes;
    const int64_t words =
        kernels_.bf16_operands ? head_dim_ / 2 : problem_.head_dim;
    std::memset(staging_, 0, lanes * words * sizeof(float));
    for (int i = 0; i < tile.rows; ++i) {
      const int64_t r = tile.first_row + i;
      const char* row =
          RowOf(problem_.q, sequence_.q_begin + task_.query_row(r),
                task_.query_head(r));
      float* to = staging_ + i * words;
      if (kernels_.bf16_operands) {
        std::memcpy(to, row, problem_.head_dim * SizeOf(problem_.dtype));
      } else {
        simd_.to_float(row, problem_.dtype, problem_.head_dim, to);
      }
    }
    simd_.transpose(reinterpret_cast<const uint32_t*>(staging_), words, lanes,
                    words, reinterpret_cast<uint32_t*>(tile.q), lanes);
  }

  // Blocks of keys, on a grid from the task's first key on.
  void Keys() {
    int64_t begin = task_.key_end, end = task_.key_begin;
    for (int i = 0; i < num_tiles_; ++i) {
      begin = std::min(begin, tile_[i].key_begin);
      end = std::max(end, tile_[i].key_end);
    }
    if (begin >= end) return;
    int64_t block =
        task_.key_begin + (begin - task_.key_begin) / kKeyBlock * kKeyBlock;
    for (; block < end && !task_.IsUnwanted(); block += kKeyBlock) {
      const int64_t skip = std::max<int64_t>(0, begin - block);
      KeyBlock(block + skip / kernels_.key_step * kernels_.key_step,
               std::min(block + kKeyBlock, end));
    }
  }

  void KeyBlock(int64_t begin, int64_t end) {
    bool packed = false;
    for (int i = 0; i < num_tiles_; ++i) {
      Tile& tile = tile_[i];
      const int64_t skip = std::max<int64_t>(0, tile.key_begin - begin);
      const int64_t first =
          begin + skip / kernels_.key_step * kernels_.key_step;
      const int64_t last = std::min(end, tile.key_end);
      if (first >= last) continue;
      const bool masked = Bounds(tile, first, last);
      if (problem_.mask.kind != MaskKind::kNone &&
          !FillBias(tile, first, last)) {
        continue;
      }
      if (!packed) Pack(begin, end);
      packed = true;
      Step(tile, begin, first, last, masked);
    }
  }

  // Which keys of [first, last) each row sees. True if some row does not see
  // all, or if the last register tile of keys is not full.
  bool Bounds(const Tile& tile, int64_t first, int64_t last) {
    const auto relative = [&](int64_t key) {
      return static_cast<int32_t>(
          std::clamp<int64_t>(key - first, 0, last - first));
    };
    const int32_t count = static_cast<int32_t>(last - first);
    bool masked = count % kernels_.key_step != 0;
    std::fill_n(lo_, tile.vecs * kernels_.lanes, 0);
    std::fill_n(hi_, tile.vecs * kernels_.lanes, count);
    for (int i = 0; i < tile.rows; ++i) {
      const KeyRange range = RowKeys(tile, i);
      lo_[i] = relative(range.begin);
      hi_[i] = relative(range.end);
      masked |= lo_[i] > 0 || hi_[i] < count;
    }
    return masked;
  }

  // The mask's part, transposed. False if it hides all of it.
  bool FillBias(const Tile& tile, int64_t first, int64_t last) {
    const int64_t lanes = tile.vecs * kernels_.lanes;
    bool any = false;
    std::fill_n(bias_, AlignUp(last - first, kernels_.key_step) * lanes, 0.0f);
    for (int i = 0; i < tile.rows; ++i) {
      const int64_t row_start = MaskRowStart(task_, tile.first_row + i);
      for (int32_t n = lo_[i]; n < hi_[i]; ++n) {
        const float bias =
            MaskBias(problem_.mask, row_start, MaskKey(task_, first + n));
        bias_[n * lanes + i] = bias;
        any |= bias != kMinusInfinity;
      }
    }
    return any || problem_.mask.kind == MaskKind::kAdditive;
  }

  void Pack(int64_t begin, int64_t end) {
    const int count = static_cast<int>(end - begin);
    k_direct_ = kernels_.bf16_operands ? head_dim_ == problem_.head_dim
                                       : problem_.dtype == DataType::kFloat32;
    if (!k_direct_) {
      for (int n = 0; n < count; ++n) PackKey(begin + n, n);
    }
    finite_ = kernels_.pack_values(
        {.v = ValueRow(begin),
         .dtype = problem_.dtype,
         .v_pitch = problem_.v.row_stride,
         .num_keys = count,
         .num_padded = static_cast<int>(AlignUp(count, kernels_.key_step)),
         .head_dim_v = problem_.head_dim_v,
         .packed = v_pack_,
         .panel_pitch = panel_pitch_,
         .row = staging_});
  }

  void PackKey(int64_t key, int n) {
    if (!kernels_.bf16_operands) {
      simd_.to_float(KeyRow(key), problem_.dtype, head_dim_,
                     k_pack_ + n * head_dim_);
      return;
    }
    auto* to = reinterpret_cast<uint16_t*>(k_pack_) + n * head_dim_;
    std::memcpy(to, KeyRow(key), problem_.head_dim * sizeof(uint16_t));
    std::fill(to + problem_.head_dim, to + head_dim_, uint16_t{0});
  }

  // One tile against keys [first, last) of the block that starts at `block`.
  void Step(Tile& tile, int64_t block, int64_t first, int64_t last,
            bool masked) {
    const int count = static_cast<int>(last - first);
    const int padded = static_cast<int>(AlignUp(count, kernels_.key_step));
    const int64_t operand = kernels_.bf16_operands ? 2 : 4;
    const void* k = k_direct_ ? KeyRow(first)
                              : reinterpret_cast<const char*>(k_pack_) +
                                    (first - block) * head_dim_ * operand;
    kernels_.scores({.q = tile.q,
                     .vecs = tile.vecs,
                     .k = k,
                     .k_pitch = k_direct_ ? problem_.k.row_stride : head_dim_,
                     .num_keys = count,
                     .num_padded = padded,
                     .head_dim = head_dim_,
                     .scale = problem_.softmax_scale,
                     .s = s_,
                     .block_max = block_max_});
    if (masked || HasGeneralScores(problem_)) MaskScores(tile, first, padded);
    kernels_.softmax({.s = s_,
                      .p = s_,
                      .vecs = tile.vecs,
                      .num_padded = padded,
                      .block_max = block_max_,
                      .row_max = tile.max,
                      .row_sum = tile.sum,
                      .alpha = alpha_});
    kernels_.values({.p = s_,
                     .vecs = tile.vecs,
                     .num_padded = padded,
                     .v = reinterpret_cast<const char*>(v_pack_) +
                          (first - block) * kernels_.panel * operand,
                     .panel_pitch = panel_pitch_,
                     .num_panels = num_panels_,
                     .alpha = alpha_,
                     .o = tile.o});
    if (!finite_) AddValuesThatAreNotFinite(tile, first, count);
  }

  void MaskScores(const Tile& tile, int64_t first, int padded) {
    const bool alibi = !problem_.alibi_slopes.empty();
    const int64_t lanes = tile.vecs * kernels_.lanes;
    for (int64_t i = 0; alibi && i < lanes; ++i) {
      const int64_t r = std::min<int64_t>(i, tile.rows - 1) + tile.first_row;
      slopes_[i] = SlopeOf(task_, r);
      diagonal_[i] = static_cast<int32_t>(task_.query_row(r) +
                                          sequence_.diagonal_shift - first);
    }
    const bool has_bias = problem_.mask.kind != MaskKind::kNone;
    kernels_.mask({.s = s_,
                   .vecs = tile.vecs,
                   .num_padded = padded,
                   .lo = lo_,
                   .hi = hi_,
                   .general = HasGeneralScores(problem_),
                   .softcap = problem_.softcap,
                   .slopes = alibi ? slopes_ : nullptr,
                   .diagonal = diagonal_,
                   .bias = has_bias ? bias_ : nullptr,
                   .bias_is_boolean = problem_.mask.kind != MaskKind::kAdditive,
                   .block_max = block_max_});
  }

  float WeightOf(const Tile& tile, int n, int i) const {
    const int64_t lanes = tile.vecs * kernels_.lanes;
    if (!kernels_.bf16_operands) return s_[n * lanes + i];
    const auto* pairs = reinterpret_cast<const uint16_t*>(s_);
    return BFloat16ToFloat(pairs[(n / 2 * lanes + i) * 2 + n % 2]);
  }

  // They were packed as 0, so rows that do not see them have lost nothing.
  void AddValuesThatAreNotFinite(const Tile& tile, int64_t first, int count) {
    const int64_t lanes = tile.vecs * kernels_.lanes;
    for (int n = 0; n < count; ++n) {
      const char* row = ValueRow(first + n);
      for (int64_t d = 0; d < problem_.head_dim_v; ++d) {
        const float value = LoadAsFloat(row, problem_.dtype, d);
        if (std::isfinite(value)) continue;
        for (int i = 0; i < tile.rows; ++i) {
          if (!IsVisible(task_, tile.first_row + i, first + n)) continue;
          tile.o[d * lanes + i] += WeightOf(tile, n, i) * value;
        }
      }
    }
  }

  void FinishTile(const Tile& tile) {
    const int64_t lanes = tile.vecs * kernels_.lanes;
    const int64_t pitch = AlignUp(problem_.head_dim_v, kLanePadding);
    simd_.transpose(reinterpret_cast<const uint32_t*>(tile.o), lanes,
                    problem_.head_dim_v, lanes,
                    reinterpret_cast<uint32_t*>(staging_), pitch);
    for (int i = 0; i < tile.rows; ++i) {
      FinishRow(simd_, task_, tile.first_row + i, staging_ + i * pitch,
                tile.max[i], tile.sum[i]);
    }
  }

  const SimdKernels& simd_;
  const TileKernels& kernels_;
  const AttentionTask& task_;
  const AttentionProblem& problem_;
  const SequenceBounds& sequence_;
  const TileLayout layout_;
  const int64_t tile_rows_;
  const int64_t head_dim_;  // as the scores kernel counts it
  const int64_t num_panels_, panel_pitch_;

  float* next_;   // scratch not handed out yet
  float* tiles_;  // scratch of the tiles
  float *k_pack_, *v_pack_, *s_, *bias_, *staging_;
  float *alpha_, *block_max_, *slopes_;
  int32_t *lo_, *hi_, *diagonal_;
  Tile tile_[kMaxTiles];
  int num_tiles_ = 0;
  bool k_direct_ = false;
  bool finite_ = true;
};

}  // namespace

int64_t TileScratchFloats(const AttentionProblem& problem,
                          int64_t rows_per_task) {
  return TileLayout(problem, rows_per_task).total();
}

void TileAttention(const SimdKernels& simd, const AttentionTask& task,
                   int64_t rows_per_task, float* scratch) {
  TileRun run(simd, task, rows_per_task, scratch);
  for (int64_t r = task.row_begin; r < task.row_end;) r += run.Run(r);
}

}  // namespace attendant::kernels::cpu
