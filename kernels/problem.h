// One attention problem, as every backend reads it: plain values, no ownership.
// The formula and the meaning of each option stand in
// proto/attendant/v1/attention.proto; here they are resolved (no "unset").
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/base/data_type.h"

namespace attendant::kernels {

// A [batch, rows, heads, head_dim] tensor by strides, all in elements. The
// stride of head_dim is 1. BSHD, BHSD, THD (batch_stride 0, rows of all
// sequences in one run) and packed qkv differ in strides alone. Stride 0
// repeats. Pointers are in the memory of the device that computes.
template <typename Pointer>
struct TensorView {
  Pointer data = nullptr;
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
  int64_t head_stride = 0;
};
using InputTensor = TensorView<const void*>;
using OutputTensor = TensorView<void*>;

// Where one sequence lies in its batch entry, and where its diagonal lies.
// Rows of q (and O, LSE) are [q_begin, q_begin + len_q), rows of k and v are
// [kv_begin, kv_begin + len_kv), both from the batch entry's first row. Below,
// row i and key j count from q_begin and kv_begin.
struct SequenceBounds {
  int64_t q_begin = 0;
  int64_t len_q = 0;
  int64_t kv_begin = 0;
  int64_t len_kv = 0;
  // 0 (top left) or len_kv - len_q (bottom right) of the whole sequence, plus
  // the first row's index when rows were cut off in front.
  int64_t diagonal_shift = 0;
  // len_q of the whole sequence: what tiling and splits may depend on.
  int64_t whole_len_q = 0;
};

enum class MaskKind : uint8_t {
  kNone,
  kBoolBytes,  // 1 byte an entry, non-zero = attend
  kBoolBits,   // entry j of a row is bit j % 8 of byte j / 8, 1 = attend
  kAdditive,   // added to S, of `dtype`
};

// A [batch, heads, rows of q, rows of k] mask; stride 0 broadcasts; the key
// stride is 1. Strides count entries of `dtype` (kAdditive) or bytes (boolean).
struct MaskView {
  MaskKind kind = MaskKind::kNone;
  DataType dtype = DataType::kFloat32;
  const void* data = nullptr;
  int64_t batch_stride = 0;
  int64_t head_stride = 0;
  int64_t row_stride = 0;
  // True: entry (i, j) stands at (q_begin + i, kv_begin + j), the positions of
  // the padded tensors. False: at (i, j), as for packed (THD) sequences.
  bool padded_positions = true;
};

inline constexpr int64_t kWindowOpen = -1;

struct AttentionProblem {
  DataType dtype = DataType::kFloat32;         // of q, k and v
  DataType output_dtype = DataType::kFloat32;  // of out; dtype or fp32

  int64_t batch = 0;  // number of sequences
  int64_t num_q_heads = 0;
  int64_t num_kv_heads = 0;  // divides num_q_heads; > 0 unless num_q_heads is 0
  int64_t head_dim = 0;      // of q and k, 1..256
  int64_t head_dim_v = 0;    // of v and out, 1..256
  // Rows of q, O and LSE stored per batch entry (THD: in all, batch_stride 0).
  // Kernels write the rows of sequences, all of them, and no other: whoever
  // owns the output fills the rest first (see HasUncoveredRows).
  int64_t rows_q = 0;

  InputTensor q, k, v;
  OutputTensor out;
  // [batch, num_q_heads, rows_q] by strides, row stride 1; null = not asked.
  float* lse = nullptr;
  int64_t lse_batch_stride = 0;
  int64_t lse_head_stride = 0;

  // One entry for all batch entries alike, or `batch` entries.
  std::vector<SequenceBounds> sequences;

  float softmax_scale = 1.0f;  // finite; 0 and negative are legal
  float softcap = 0.0f;        // 0 = none
  bool causal = false;
  int64_t window_left = kWindowOpen;
  int64_t window_right = kWindowOpen;
  // Host memory, always (also for a GPU): [num_q_heads] with batch stride 0, or
  // [batch, num_q_heads]; element (b, h) is at b * alibi_batch_stride + h.
  std::span<const float> alibi_slopes;
  int64_t alibi_batch_stride = 0;
  // Host memory: [num_q_heads]; empty = none.
  std::span<const float> sinks;
  MaskView mask;

  // Head counts of the whole request. Tiling, packing and split boundaries are
  // a pure function of these, head dims, dtype, mask kind and a sequence's own
  // whole_len_q and len_kv: never of batch or of how the request was cut.
  int64_t whole_num_q_heads = 0;
  int64_t whole_num_kv_heads = 0;
  // Row of the capability table that was chosen for the whole request: a part
  // that also satisfies a better row's rules (of alignment, say) stays with it,
  // so that all parts are computed alike. Empty = the best. Points to a
  // literal.
  std::string_view kernel;

  const SequenceBounds& sequence(int64_t b) const {
    return sequences.size() == 1 ? sequences[0] : sequences[b];
  }
  // True if the rows of all sequences lie in one run (THD), so that there is
  // one stored batch entry of rows_q rows.
  bool HasPackedRows() const {
    return batch > 1 && q.batch_stride == 0 && out.batch_stride == 0 &&
           sequences.size() > 1;
  }
  // Query heads that share one KV head.
  int64_t group_size() const {
    return num_kv_heads == 0 ? 1 : num_q_heads / num_kv_heads;
  }
};

// Keys [begin, end) that row i of a sequence may see by length, causality and
// window (a boolean mask may hide more). Empty if begin >= end.
struct KeyRange {
  int64_t begin;
  int64_t end;
};
inline KeyRange VisibleKeys(const AttentionProblem& problem,
                            const SequenceBounds& sequence, int64_t i) {
  const int64_t diagonal = i + sequence.diagonal_shift;
  KeyRange range{0, sequence.len_kv};
  if (problem.causal) range.end = std::min(range.end, diagonal + 1);
  if (problem.window_right != kWindowOpen) {
    range.end = std::min(range.end, diagonal + problem.window_right + 1);
  }
  if (problem.window_left != kWindowOpen) {
    range.begin = std::max(range.begin, diagonal - problem.window_left);
  }
  return range;
}

// True if some stored row of q belongs to no sequence of this (whole, uncut)
// problem: the owner of the output then sets O = 0 and LSE = -inf everywhere
// before the launch.
bool HasUncoveredRows(const AttentionProblem& problem);

// 2 * (head_dim + head_dim_v) per visible (row, key) pair and query head, with
// causality, window and lengths counted, a mask's entries not.
double ForwardFlops(const AttentionProblem& problem);

// The part of `problem` with batch entries [batch_begin, batch_end) and KV
// heads [kv_head_begin, kv_head_end): what a large request is cut into. Answers
// are bitwise those of the whole. LSE and O point into the whole's buffers.
AttentionProblem CutProblem(const AttentionProblem& problem,
                            int64_t batch_begin, int64_t batch_end,
                            int64_t kv_head_begin, int64_t kv_head_end);

}  // namespace attendant::kernels
