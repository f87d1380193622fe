#include "tests/testing/host_problem.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/base/check.h"
#include "tests/testing/random.h"

namespace attendant::testing {
namespace {

using kernels::AttentionProblem;
using kernels::DataType;
using kernels::MaskKind;
using kernels::SequenceBounds;
using kernels::SizeOf;

struct Strides {
  int64_t batch, row, head, elements;
};

Strides StridesOf(const ProblemOptions& options, int64_t entries, int64_t rows,
                  int64_t heads, int64_t dim) {
  Strides strides;
  if (options.layout == Layout::kBhsd) {
    strides.row = dim + options.row_gap;
    strides.head = rows * strides.row + options.head_gap;
    strides.batch = heads * strides.head;
  } else {
    strides.head = dim + options.head_gap;
    strides.row = heads * strides.head + options.row_gap;
    strides.batch = rows * strides.row;
  }
  strides.elements = entries * strides.batch;
  if (options.layout == Layout::kThd) strides.batch = 0;
  return strides;
}

template <typename View>
void SetView(View* view, GuardedBuffer* buffer, const Strides& strides) {
  *view = View{buffer->data(), strides.batch, strides.row, strides.head};
}

template <typename View>
int64_t Index(const View& view, int64_t b, int64_t row, int64_t head,
              int64_t d) {
  return b * view.batch_stride + row * view.row_stride +
         head * view.head_stride + d;
}

void Store(const kernels::InputTensor& view, DataType dtype, int64_t index,
           float value) {
  kernels::StoreFromFloat(const_cast<void*>(view.data), dtype, index, value);
}

int64_t At(const std::vector<int64_t>& values, int64_t b, int64_t otherwise) {
  return values.empty() ? otherwise : values[b];
}

}  // namespace

HostProblem::HostProblem(const ProblemOptions& options) : options_(options) {
  if (options_.head_dim_v == 0) options_.head_dim_v = options_.head_dim;
  problem_.dtype = options_.dtype;
  problem_.output_dtype = options_.output_dtype.value_or(options_.dtype);
  problem_.batch = options_.batch;
  problem_.num_q_heads = problem_.whole_num_q_heads = options_.num_q_heads;
  problem_.num_kv_heads = problem_.whole_num_kv_heads = options_.num_kv_heads;
  problem_.head_dim = options_.head_dim;
  problem_.head_dim_v = options_.head_dim_v;
  problem_.causal = options_.causal;
  problem_.window_left = options_.window_left;
  problem_.window_right = options_.window_right;
  problem_.softcap = options_.softcap;
  problem_.softmax_scale = options_.softmax_scale.value_or(
      1.0f / std::sqrt(static_cast<float>(options_.head_dim)));
  SetSequences();
  AllocateTensors();
  AllocateMask();
  FillRandom();
  for (GuardedBuffer* buffer : inputs()) buffer->ForbidGuards();
}

void HostProblem::SetSequences() {
  const bool packed = options_.layout == Layout::kThd;
  problem_.rows_q = packed ? 0 : options_.seqlen_q;
  rows_kv_ = packed ? 0 : options_.seqlen_kv;
  for (int64_t b = 0; b < options_.batch; ++b) {
    SequenceBounds sequence;
    sequence.q_begin = At(options_.skips_q, b, 0);
    sequence.kv_begin = At(options_.skips_kv, b, 0);
    sequence.len_q = At(options_.lens_q, b, options_.seqlen_q);
    sequence.len_kv = At(options_.lens_kv, b, options_.seqlen_kv);
    if (packed) {
      sequence.q_begin += problem_.rows_q;
      sequence.kv_begin += rows_kv_;
      problem_.rows_q = sequence.q_begin + sequence.len_q;
      rows_kv_ = sequence.kv_begin + sequence.len_kv;
    }
    ATTENDANT_CHECK(sequence.q_begin + sequence.len_q <= problem_.rows_q);
    ATTENDANT_CHECK(sequence.kv_begin + sequence.len_kv <= rows_kv_);
    sequence.whole_len_q = sequence.len_q;
    sequence.diagonal_shift =
        options_.bottom_right ? sequence.len_kv - sequence.len_q : 0;
    problem_.sequences.push_back(sequence);
  }
  const bool alike = options_.lens_q.empty() && options_.lens_kv.empty() &&
                     options_.skips_q.empty() && options_.skips_kv.empty();
  if (alike && !packed && problem_.sequences.size() > 1) {
    problem_.sequences.resize(1);
  }
}

void HostProblem::AllocateTensors() {
  const AttentionProblem& p = problem_;
  const bool packed = options_.layout == Layout::kThd;
  const int64_t entries = packed ? std::min<int64_t>(p.batch, 1) : p.batch;
  const int64_t size = SizeOf(p.dtype);
  const int64_t offset = options_.base_offset * size;
  if (options_.layout == Layout::kPackedQkv) {
    AllocatePackedQkv();
  } else {
    const Strides q =
        StridesOf(options_, entries, p.rows_q, p.num_q_heads, p.head_dim);
    const Strides k =
        StridesOf(options_, entries, rows_kv_, p.num_kv_heads, p.head_dim);
    const Strides v =
        StridesOf(options_, entries, rows_kv_, p.num_kv_heads, p.head_dim_v);
    q_ = GuardedBuffer(q.elements * size, offset);
    k_ = GuardedBuffer(k.elements * size, offset);
    v_ = GuardedBuffer(v.elements * size, offset);
    SetView(&problem_.q, &q_, q);
    SetView(&problem_.k, &k_, k);
    SetView(&problem_.v, &v_, v);
  }
  const int64_t out_size = SizeOf(p.output_dtype);
  const Strides out =
      StridesOf(options_, entries, p.rows_q, p.num_q_heads, p.head_dim_v);
  out_ =
      GuardedBuffer(out.elements * out_size, options_.base_offset * out_size);
  SetView(&problem_.out, &out_, out);
  if (options_.lse) {
    lse_ = GuardedBuffer(entries * p.num_q_heads * p.rows_q * 4);
    problem_.lse = reinterpret_cast<float*>(lse_.data());
    problem_.lse_head_stride = p.rows_q;
    problem_.lse_batch_stride = packed ? 0 : p.num_q_heads * p.rows_q;
  }
}

void HostProblem::AllocatePackedQkv() {
  AttentionProblem& p = problem_;
  ATTENDANT_CHECK(p.rows_q == rows_kv_ && p.head_dim == p.head_dim_v);
  const Strides all = StridesOf(options_, p.batch, p.rows_q,
                                p.num_q_heads + 2 * p.num_kv_heads, p.head_dim);
  const int64_t size = SizeOf(p.dtype);
  q_ = GuardedBuffer(all.elements * size, options_.base_offset * size);
  SetView(&p.q, &q_, all);
  p.k = p.v = p.q;
  p.k.data = q_.data() + p.num_q_heads * all.head * size;
  p.v.data = q_.data() + (p.num_q_heads + p.num_kv_heads) * all.head * size;
}

void HostProblem::AllocateMask() {
  kernels::MaskView& mask = problem_.mask;
  mask.kind = options_.mask;
  mask.dtype = options_.mask_dtype;
  if (mask.kind == MaskKind::kNone) return;
  mask.padded_positions = options_.layout != Layout::kThd;
  int64_t rows = problem_.rows_q;
  int64_t keys = rows_kv_;
  if (!mask.padded_positions) {
    rows = keys = 0;
    for (const SequenceBounds& sequence : problem_.sequences) {
      rows = std::max(rows, sequence.len_q);
      keys = std::max(keys, sequence.len_kv);
    }
  }
  const bool bits = mask.kind == MaskKind::kBoolBits;
  const int64_t heads = options_.mask_per_head ? problem_.num_q_heads : 1;
  const int64_t entries = options_.mask_per_batch ? problem_.batch : 1;
  mask.row_stride = (bits ? (keys + 7) / 8 : keys) + options_.row_gap;
  mask.head_stride = options_.mask_per_head ? rows * mask.row_stride : 0;
  mask.batch_stride =
      options_.mask_per_batch ? heads * rows * mask.row_stride : 0;
  const int64_t entry_bytes =
      mask.kind == MaskKind::kAdditive ? SizeOf(mask.dtype) : 1;
  mask_ = GuardedBuffer(entries * heads * rows * mask.row_stride * entry_bytes);
  mask.data = mask_.data();
}

void HostProblem::FillRandom() {
  NormalGenerator normal(options_.seed);
  const auto fill = [&](int64_t, int64_t, int64_t, int64_t) {
    return options_.random ? normal.Next() : 0.0f;
  };
  FillQ(fill);
  FillK(fill);
  FillV(fill);
  if (options_.alibi) {
    const int64_t entries = options_.alibi_per_batch ? problem_.batch : 1;
    problem_.alibi_batch_stride =
        options_.alibi_per_batch ? problem_.num_q_heads : 0;
    for (int64_t n = 0; n < entries * problem_.num_q_heads; ++n) {
      slopes_.push_back(0.25f * std::abs(normal.Next()));
    }
    problem_.alibi_slopes = slopes_;
  }
  if (options_.sinks) {
    for (int64_t h = 0; h < problem_.num_q_heads; ++h) {
      sinks_.push_back(normal.Next());
    }
    problem_.sinks = sinks_;
  }
  const bool additive = options_.mask == MaskKind::kAdditive;
  FillMask([&](int64_t, int64_t, int64_t, int64_t) {
    const float value = normal.Next();
    return additive ? value : static_cast<float>(value > -0.5f);
  });
}

void HostProblem::SetQ(int64_t b, int64_t row, int64_t head, int64_t d,
                       float value) {
  Store(problem_.q, problem_.dtype,
        Index(problem_.q, b, problem_.sequence(b).q_begin + row, head, d),
        value);
}

void HostProblem::SetK(int64_t b, int64_t row, int64_t head, int64_t d,
                       float value) {
  Store(problem_.k, problem_.dtype,
        Index(problem_.k, b, problem_.sequence(b).kv_begin + row, head, d),
        value);
}

void HostProblem::SetV(int64_t b, int64_t row, int64_t head, int64_t d,
                       float value) {
  Store(problem_.v, problem_.dtype,
        Index(problem_.v, b, problem_.sequence(b).kv_begin + row, head, d),
        value);
}

void HostProblem::FillQ(const Filler& value) {
  for (int64_t b = 0; b < problem_.batch; ++b) {
    for (int64_t i = 0; i < problem_.sequence(b).len_q; ++i) {
      for (int64_t h = 0; h < problem_.num_q_heads; ++h) {
        for (int64_t d = 0; d < problem_.head_dim; ++d) {
          SetQ(b, i, h, d, value(b, i, h, d));
        }
      }
    }
  }
}

void HostProblem::FillK(const Filler& value) {
  for (int64_t b = 0; b < problem_.batch; ++b) {
    for (int64_t j = 0; j < problem_.sequence(b).len_kv; ++j) {
      for (int64_t h = 0; h < problem_.num_kv_heads; ++h) {
        for (int64_t d = 0; d < problem_.head_dim; ++d) {
          SetK(b, j, h, d, value(b, j, h, d));
        }
      }
    }
  }
}

void HostProblem::FillV(const Filler& value) {
  for (int64_t b = 0; b < problem_.batch; ++b) {
    for (int64_t j = 0; j < problem_.sequence(b).len_kv; ++j) {
      for (int64_t h = 0; h < problem_.num_kv_heads; ++h) {
        for (int64_t d = 0; d < problem_.head_dim_v; ++d) {
          SetV(b, j, h, d, value(b, j, h, d));
        }
      }
    }
  }
}

void HostProblem::FillMask(
    const std::function<float(int64_t, int64_t, int64_t, int64_t)>& value) {
  const kernels::MaskView& mask = problem_.mask;
  if (mask.kind == MaskKind::kNone) return;
  const int64_t entries = options_.mask_per_batch ? problem_.batch : 1;
  const int64_t heads = options_.mask_per_head ? problem_.num_q_heads : 1;
  // A broadcast mask is filled for the longest sequence: for each in turn.
  for (int64_t b = 0; b < problem_.batch; ++b) {
    const SequenceBounds& sequence = problem_.sequence(b);
    const int64_t first_row = mask.padded_positions ? sequence.q_begin : 0;
    const int64_t first_key = mask.padded_positions ? sequence.kv_begin : 0;
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < sequence.len_q; ++i) {
        const int64_t row = std::min(b, entries - 1) * mask.batch_stride +
                            h * mask.head_stride +
                            (first_row + i) * mask.row_stride;
        for (int64_t j = 0; j < sequence.len_kv; ++j) {
          const int64_t key = first_key + j;
          const float entry = value(b, h, i, j);
          if (mask.kind == MaskKind::kAdditive) {
            kernels::StoreFromFloat(mask_.data(), mask.dtype, row + key, entry);
          } else if (mask.kind == MaskKind::kBoolBytes) {
            mask_.data()[row + key] = std::byte{entry != 0};
          } else {
            std::byte& eight = mask_.data()[row + key / 8];
            const std::byte bit{static_cast<uint8_t>(1 << (key % 8))};
            eight = entry != 0 ? eight | bit : eight & ~bit;
          }
        }
      }
    }
  }
}

float HostProblem::Out(int64_t b, int64_t row, int64_t head, int64_t d) const {
  return kernels::LoadAsFloat(
      problem_.out.data, problem_.output_dtype,
      Index(problem_.out, b, problem_.sequence(b).q_begin + row, head, d));
}

float HostProblem::Lse(int64_t b, int64_t head, int64_t row) const {
  return problem_
      .lse[b * problem_.lse_batch_stride + head * problem_.lse_head_stride +
           problem_.sequence(b).q_begin + row];
}

std::vector<uint8_t> HostProblem::AnswerBytes() const {
  const AttentionProblem& p = problem_;
  const int64_t entries = out_.size() == 0     ? 0
                          : p.out.batch_stride ? p.batch
                                               : 1;
  const int64_t row_bytes = p.head_dim_v * SizeOf(p.output_dtype);
  std::vector<uint8_t> bytes;
  for (int64_t b = 0; b < entries; ++b) {
    for (int64_t row = 0; row < p.rows_q; ++row) {
      for (int64_t head = 0; head < p.num_q_heads; ++head) {
        const auto* vector =
            static_cast<const uint8_t*>(p.out.data) +
            Index(p.out, b, row, head, 0) * SizeOf(p.output_dtype);
        bytes.insert(bytes.end(), vector, vector + row_bytes);
      }
    }
  }
  if (!lse_.empty()) {
    const auto* lse = reinterpret_cast<const uint8_t*>(lse_.data());
    bytes.insert(bytes.end(), lse, lse + lse_.size());
  }
  return bytes;
}

void HostProblem::PoisonOutputs() {
  out_.Poison();
  if (!lse_.empty()) lse_.Poison();
}

std::vector<GuardedBuffer*> HostProblem::inputs() {
  std::vector<GuardedBuffer*> buffers;
  for (GuardedBuffer* buffer : {&q_, &k_, &v_, &mask_}) {
    if (!buffer->empty()) buffers.push_back(buffer);
  }
  return buffers;
}

std::vector<GuardedBuffer*> HostProblem::outputs() {
  std::vector<GuardedBuffer*> buffers = {&out_};
  if (!lse_.empty()) buffers.push_back(&lse_);
  return buffers;
}

}  // namespace attendant::testing
