// A whole attention problem on the host, for tests: it owns q, k, v, mask,
// slopes, sinks, O and LSE. Every byte that no sequence owns (padding, stride
// gaps, guards, rows outside the lengths) holds NaN, and O and LSE start as
// NaN, so that a read or a write in the wrong place shows.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/problem.h"
#include "tests/testing/guarded_buffer.h"

namespace attendant::testing {

enum class Layout { kBshd, kBhsd, kThd, kPackedQkv };

// What to build. Lengths count rows, gaps and offsets count elements.
struct ProblemOptions {
  kernels::DataType dtype = kernels::DataType::kFloat32;
  std::optional<kernels::DataType> output_dtype;  // default: dtype
  Layout layout = Layout::kBshd;
  int64_t batch = 1;
  int64_t num_q_heads = 1;
  int64_t num_kv_heads = 1;
  int64_t head_dim = 64;
  int64_t head_dim_v = 0;  // 0 = head_dim
  int64_t seqlen_q = 1;    // stored rows of a batch entry, not for kThd
  int64_t seqlen_kv = 1;
  // Per sequence; empty = seqlen_q / seqlen_kv each.
  std::vector<int64_t> lens_q, lens_kv;
  // Left padding per sequence; empty = 0. kThd: rows skipped before a sequence.
  std::vector<int64_t> skips_q, skips_kv;

  bool causal = false;
  bool bottom_right = false;
  int64_t window_left = kernels::kWindowOpen;
  int64_t window_right = kernels::kWindowOpen;
  std::optional<float> softmax_scale;  // default: head_dim^-0.5
  float softcap = 0;
  bool alibi = false;
  bool alibi_per_batch = false;
  bool sinks = false;
  kernels::MaskKind mask = kernels::MaskKind::kNone;
  kernels::DataType mask_dtype = kernels::DataType::kFloat32;
  bool mask_per_batch = false;
  bool mask_per_head = false;
  bool lse = true;

  int64_t row_gap = 0;      // after each row (kBshd: after its heads)
  int64_t head_gap = 0;     // after each head's vector (kBhsd: its rows)
  int64_t base_offset = 0;  // of q, k, v and O from a 256-byte border
  uint64_t seed = 1;        // of q, k, v, slopes, sinks and mask
  bool random = true;       // false: q, k and v are zero
};

class HostProblem {
 public:
  explicit HostProblem(const ProblemOptions& options);
  HostProblem(HostProblem&&) = default;
  HostProblem& operator=(HostProblem&&) = default;

  // Pointers are host memory of this object. Tests may change it.
  kernels::AttentionProblem& problem() { return problem_; }
  const kernels::AttentionProblem& problem() const { return problem_; }
  const ProblemOptions& options() const { return options_; }

  // Value of element `d` of row `row` of head `head` of sequence `b`; rows
  // count from the sequence's first.
  using Filler =
      std::function<float(int64_t b, int64_t row, int64_t head, int64_t d)>;
  void FillQ(const Filler& value);
  void FillK(const Filler& value);
  void FillV(const Filler& value);
  void SetQ(int64_t b, int64_t row, int64_t head, int64_t d, float value);
  void SetK(int64_t b, int64_t row, int64_t head, int64_t d, float value);
  void SetV(int64_t b, int64_t row, int64_t head, int64_t d, float value);
  // Mask entry of row i and key j; `value` != 0 = attend for boolean masks.
  void FillMask(const std::function<float(int64_t b, int64_t head, int64_t i,
                                          int64_t j)>& value);
  std::vector<float>& slopes() { return slopes_; }
  std::vector<float>& sinks() { return sinks_; }

  float Out(int64_t b, int64_t row, int64_t head, int64_t d) const;
  float Lse(int64_t b, int64_t head, int64_t row) const;
  // O, then LSE, of every stored row in [batch, row, head, dim] order: bytes
  // that do not depend on the layout.
  std::vector<uint8_t> AnswerBytes() const;

  // Fills O and LSE, and all around them, with NaN.
  void PoisonOutputs();
  // Empty, or which byte outside of O and LSE was written, or that some row
  // was not written at all.
  std::string OutputDamage() const;

  // Everything a device needs: inputs first. LSE is empty if not asked for.
  std::vector<GuardedBuffer*> inputs();
  std::vector<GuardedBuffer*> outputs();

 private:
  void SetSequences();
  void AllocateTensors();
  void AllocatePackedQkv();
  void AllocateMask();
  void FillRandom();

  ProblemOptions options_;
  kernels::AttentionProblem problem_;
  int64_t rows_kv_ = 0;  // stored, as problem_.rows_q
  GuardedBuffer q_, k_, v_, mask_, out_, lse_;
  std::vector<float> slopes_, sinks_;
};

}  // namespace attendant::testing
