// The repair of 0 * NaN: a masked key's V that is NaN or infinite, met by P = 0
// in a matrix product, spoils rows that may not see it. When a launch left a
// value that is not finite:
//   1. The same kernels run again, reading such values of V as 0. Rows that see
//      none of them are then what they would be had the masked V been 0, bit by
//      bit; the rest lacks what it should see.
//   2. The kernel here puts that back: a column of a row that sees NaN, or
//      infinities of both signs, becomes NaN, one that sees an infinity
//      becomes it.
// NaN in Q or in a visible K spoils P itself and stays through both.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/problem.h"
#include "kernels/sm90/kernel_params.h"

namespace attendant::kernels::sm90 {

// What PrefillParams and DecodeParams take as scrub_exponent.
constexpr uint32_t ExponentBits(DataType dtype) {
  return dtype == DataType::kBFloat16 ? 0x7f80 : 0x7c00;
}

struct RestoreParams {
  ProblemRecord problem;
  InputTensor v;
  const SequenceRecord* sequences;  // device; of all problems of the launch
  int32_t num_sequences;
  int32_t problem_index;
  int32_t num_kv_heads;
  int32_t batch_count;  // of each of the problem's records
  bool is_bf16;
};

RestoreParams RestoreParamsOf(const AttentionProblem& problem,
                              const ProblemRecord& record,
                              const SequenceRecord* device_sequences,
                              int32_t num_sequences, int32_t problem_index);

// Enqueues step 2 for one problem.
cudaError_t LaunchRestore(const RestoreParams& params, cudaStream_t stream);

}  // namespace attendant::kernels::sm90
