#include <cmath>
#include <limits>

#include "kernels/reference/oracle.h"
#include "kernels/reference/row.h"

namespace attendant::kernels::reference {
namespace {

float RoundTo(DataType dtype, float value) {
  switch (dtype) {
    case DataType::kFloat32:
      return value;
    case DataType::kFloat16:
      return Float16ToFloat(FloatToFloat16(value));
    case DataType::kBFloat16:
      return BFloat16ToFloat(FloatToBFloat16(value));
  }
  return value;
}

void StoreRow(const AttentionProblem& problem, int64_t b, int64_t row,
              int64_t head, const float* values, float lse) {
  const OutputTensor& out = problem.out;
  const int64_t first =
      b * out.batch_stride + row * out.row_stride + head * out.head_stride;
  for (int64_t d = 0; d < problem.head_dim_v; ++d) {
    StoreFromFloat(out.data, problem.output_dtype, first + d, values[d]);
  }
  if (problem.lse != nullptr) {
    problem.lse[b * problem.lse_batch_stride + head * problem.lse_head_stride +
                row] = lse;
  }
}

}  // namespace

void FillEmptyRows(const AttentionProblem& problem) {
  const std::vector<float> zeros(problem.head_dim_v);
  const int64_t entries = problem.HasPackedRows() ? 1 : problem.batch;
  for (int64_t b = 0; b < entries; ++b) {
    for (int64_t head = 0; head < problem.num_q_heads; ++head) {
      for (int64_t row = 0; row < problem.rows_q; ++row) {
        StoreRow(problem, b, row, head, zeros.data(),
                 -std::numeric_limits<float>::infinity());
      }
    }
  }
}

void PlainSequences(const AttentionProblem& problem) {
  const int64_t dim_v = problem.head_dim_v;
  std::vector<float> q(problem.head_dim), out(dim_v), weights;
  std::vector<int64_t> keys;
  for (int64_t b = 0; b < problem.batch; ++b) {
    const SequenceBounds& sequence = problem.sequence(b);
    for (int64_t kv_head = 0; kv_head < problem.num_kv_heads; ++kv_head) {
      const KeysAndValues<float> rows(problem, b, kv_head);
      for (int64_t g = 0; g < problem.group_size(); ++g) {
        const int64_t head = kv_head * problem.group_size() + g;
        for (int64_t i = 0; i < sequence.len_q; ++i) {
          const int64_t row = sequence.q_begin + i;
          LoadRow(problem.q, problem.dtype, b, row, head, problem.head_dim,
                  q.data());
          VisibleLogits(problem, b, head, i, q.data(), rows.k.data(), &keys,
                        &weights);
          const float lse = SoftmaxInPlace(problem, head, &weights);
          out.assign(dim_v, 0.0f);
          if (std::isinf(lse)) keys.clear();  // sees nothing: O = 0
          for (size_t n = 0; n < keys.size(); ++n) {
            const float p = RoundTo(problem.dtype, weights[n]);
            const float* v = &rows.v[keys[n] * dim_v];
            for (int64_t d = 0; d < dim_v; ++d) out[d] += p * v[d];
          }
          StoreRow(problem, b, row, head, out.data(), lse);
        }
      }
    }
  }
}

void Plain(const AttentionProblem& problem) {
  if (HasUncoveredRows(problem)) FillEmptyRows(problem);
  PlainSequences(problem);
}

}  // namespace attendant::kernels::reference
