#include "kernels/cpu/row_output.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attendant::kernels::cpu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

void WriteRow(const SimdKernels& simd, const AttentionTask& task, int64_t r,
              const float* o, float max, float sum) {
  const AttentionProblem& problem = *task.problem;
  const int64_t row = task.sequence().q_begin + task.query_row(r);
  const int64_t head = task.query_head(r);
  const OutputTensor& out = problem.out;
  char* place = static_cast<char*>(out.data) +
                (task.b * out.batch_stride + row * out.row_stride +
                 head * out.head_stride) *
                    SizeOf(problem.output_dtype);
  const bool sees_nothing = max == kMinusInfinity && !std::isnan(sum);
  if (sees_nothing) {
    std::fill_n(place, problem.head_dim_v * SizeOf(problem.output_dtype), 0);
  } else {
    double denominator = sum;
    if (!problem.sinks.empty()) {
      denominator += std::exp(double{problem.sinks[head]} - double{max});
    }
    simd.from_float(o, static_cast<float>(1.0 / denominator),
                    problem.head_dim_v, problem.output_dtype, place);
  }
  if (problem.lse != nullptr) {
    problem.lse[task.b * problem.lse_batch_stride +
                head * problem.lse_head_stride + row] =
        sees_nothing ? kMinusInfinity
                     : static_cast<float>(max + std::log(double{sum}));
  }
}

}  // namespace

void FinishRow(const SimdKernels& simd, const AttentionTask& task, int64_t r,
               const float* o, float max, float sum) {
  if (task.partial == nullptr) return WriteRow(simd, task, r, o, max, sum);
  const int64_t dims = task.problem->head_dim_v;
  float* to = task.partial + (r - task.row_begin) * PartialPitch(*task.problem);
  std::copy_n(o, dims, to);
  to[dims] = max;
  to[dims + 1] = sum;
}

void MergePartials(const SimdKernels& simd, const AttentionTask& task,
                   const float* partials, int64_t splits, float* o) {
  const int64_t dims = task.problem->head_dim_v;
  const int64_t pitch = PartialPitch(*task.problem);
  const int64_t rows = task.row_end - task.row_begin;
  for (int64_t r = 0; r < rows; ++r) {
    float max = kMinusInfinity;
    for (int64_t split = 0; split < splits; ++split) {
      max = std::max(max, partials[(split * rows + r) * pitch + dims]);
    }
    float sum = 0;
    std::fill_n(o, dims, 0.0f);
    for (int64_t split = 0; split < splits; ++split) {
      const float* from = partials + (split * rows + r) * pitch;
      const float part_max = from[dims];
      // A NaN in a part's O or sum stays one; a part that saw nothing is 0.
      const float weight =
          part_max == kMinusInfinity ? 0.0f : std::exp(part_max - max);
      for (int64_t d = 0; d < dims; ++d) o[d] += weight * from[d];
      sum += weight * from[dims + 1];
    }
    WriteRow(simd, task, task.row_begin + r, o, max, sum);
  }
}

}  // namespace attendant::kernels::cpu
