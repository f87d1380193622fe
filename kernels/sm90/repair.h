// The repair of 0 * NaN: a masked key's V that is NaN or infinite, met by P = 0
// in a matrix product, spoils rows that may not see it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/problem.h"
#include "kernels/sm90/kernel_params.h"

namespace attendant::kernels::sm90 {

struct RepairParams {
  ProblemRecord problem;
  InputTensor q, k, v;
  const SequenceRecord* sequences;  // device; of all problems of the launch
  int32_t num_sequences;
  int32_t problem_index;
  int32_t num_heads;
  int32_t batch_count;  // of each of the problem's records
  int32_t head_dim;
  float softmax_scale;
  bool is_bf16;
};

RepairParams RepairParamsOf(const AttentionProblem& problem,
                            const ProblemRecord& record,
                            const SequenceRecord* device_sequences,
                            int32_t num_sequences, int32_t problem_index);

// Enqueues a kernel that computes every row whose stored O is not finite anew,
// in fp32, reading no key that the row does not see. LSE needs no repair.
cudaError_t LaunchRepair(const RepairParams& params, cudaStream_t stream);

}  // namespace attendant::kernels::sm90
