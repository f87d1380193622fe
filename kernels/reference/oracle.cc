#include "kernels/reference/oracle.h"

#include <cmath>
#include <limits>

#include "kernels/reference/row.h"

namespace attendant::kernels::reference {

OracleResult Oracle(const AttentionProblem& problem,
                    const std::function<void(double)>& progress) {
  const bool packed = problem.HasPackedRows();
  const int64_t entries = packed ? 1 : problem.batch;
  const int64_t heads = problem.num_q_heads;
  const int64_t dim_v = problem.head_dim_v;
  OracleResult result;
  result.out.resize(entries * problem.rows_q * heads * dim_v);
  result.lse.assign(entries * heads * problem.rows_q,
                    -std::numeric_limits<double>::infinity());

  std::vector<double> q(problem.head_dim), weights;
  std::vector<int64_t> keys;
  for (int64_t b = 0; b < problem.batch; ++b) {
    const SequenceBounds& sequence = problem.sequence(b);
    const int64_t entry = packed ? 0 : b;
    for (int64_t kv_head = 0; kv_head < problem.num_kv_heads; ++kv_head) {
      const KeysAndValues<double> rows(problem, b, kv_head);
      for (int64_t g = 0; g < problem.group_size(); ++g) {
        const int64_t head = kv_head * problem.group_size() + g;
        for (int64_t i = 0; i < sequence.len_q; ++i) {
          const int64_t row = sequence.q_begin + i;
          if (progress && i % 64 == 0) {
            progress(
                (static_cast<double>(b * heads + head) +
                 static_cast<double>(i) / static_cast<double>(sequence.len_q)) /
                static_cast<double>(problem.batch * heads));
          }
          LoadRow(problem.q, problem.dtype, b, row, head, problem.head_dim,
                  q.data());
          VisibleLogits(problem, b, head, i, q.data(), rows.k.data(), &keys,
                        &weights);
          const double lse = SoftmaxInPlace(problem, head, &weights);
          result.lse[(entry * heads + head) * problem.rows_q + row] = lse;
          if (std::isinf(lse)) continue;  // sees nothing: O = 0
          double* out =
              &result.out[((entry * problem.rows_q + row) * heads + head) *
                          dim_v];
          for (size_t n = 0; n < keys.size(); ++n) {
            const double* v = &rows.v[keys[n] * dim_v];
            for (int64_t d = 0; d < dim_v; ++d) out[d] += weights[n] * v[d];
          }
        }
      }
    }
  }
  return result;
}

}  // namespace attendant::kernels::reference
