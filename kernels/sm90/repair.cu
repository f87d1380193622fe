// One block per (sequence, KV head) and share of rows, a thread a column of V.
// A row's visible keys [begin, end) move right only as the row grows, so each
// thread walks its column once, counting what enters and what leaves.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/sm90/repair.h"

namespace attendant::kernels::sm90 {
namespace {

constexpr int kThreads = 256;  // at least the columns of V
constexpr int kRowsPerShare = 4096;

// Values that are not finite among a row's visible keys, in one column.
struct SeenCounts {
  int nan = 0;
  int positive = 0;
  int negative = 0;

  __device__ void Add(float value, int count) {
    if (isfinite(value)) return;
    (isnan(value) ? nan : value > 0 ? positive : negative) += count;
  }
  __device__ bool any() const { return nan + positive + negative != 0; }
  __device__ float Sum() const {
    if (nan > 0 || (positive > 0 && negative > 0)) return NAN;
    return positive > 0 ? INFINITY : -INFINITY;
  }
};

template <typename Element>
class ColumnRestorer {
 public:
  __device__ ColumnRestorer(const RestoreParams& params,
                            const SequenceRecord& sequence, int batch,
                            int kv_head)
      : params_(params),
        sequence_(sequence),
        batch_(batch),
        kv_head_(kv_head),
        v_(static_cast<const Element*>(params.v.data) +
           batch * params.v.batch_stride + kv_head * params.v.head_stride +
           threadIdx.x) {}

  __device__ void Run(int row_begin, int row_end) const {
    SeenCounts seen;
    int begin = Begin(row_begin);
    int end = begin;
    for (int row = row_begin; row < row_end; ++row) {
      for (; end < End(row); ++end) seen.Add(Value(end), 1);
      for (; begin < min(end, Begin(row)); ++begin) seen.Add(Value(begin), -1);
      if (begin == end) begin = end = max(end, Begin(row));
      for (; end < End(row); ++end) seen.Add(Value(end), 1);
      if (seen.any()) AddToRow(row, seen.Sum());
    }
  }

 private:
  __device__ int Begin(int row) const {
    return max(0, row + sequence_.low_offset);
  }
  __device__ int End(int row) const {
    return min(sequence_.len_kv, row + sequence_.high_offset);
  }
  __device__ float Value(int key) const {
    return static_cast<float>(
        v_[(int64_t{sequence_.kv_begin} + key) * params_.v.row_stride]);
  }

  __device__ void AddToRow(int row, float value) const {
    const ProblemRecord& problem = params_.problem;
    for (int i = 0; i < problem.group_size; ++i) {
      const int64_t out =
          batch_ * problem.out_batch_stride +
          (int64_t{sequence_.q_begin} + row) * problem.out_row_stride +
          (int64_t{kv_head_} * problem.group_size + i) *
              problem.out_head_stride +
          threadIdx.x;
      if (problem.out_is_fp32) {
        static_cast<float*>(problem.out)[out] += value;
      } else {
        Element& element = static_cast<Element*>(problem.out)[out];
        element = static_cast<Element>(static_cast<float>(element) + value);
      }
    }
  }

  const RestoreParams& params_;
  const SequenceRecord& sequence_;
  const int batch_, kv_head_;
  const Element* v_;
};

template <typename Element>
__global__ void __launch_bounds__(kThreads)
    RestoreKernel(const __grid_constant__ RestoreParams params) {
  if (threadIdx.x >= params.problem.head_dim_v) return;
  const int64_t strands = int64_t{params.batch_count} * params.num_kv_heads;
  for (int64_t unit = blockIdx.x; unit < params.num_sequences * strands;
       unit += gridDim.x) {
    const SequenceRecord& sequence = params.sequences[unit / strands];
    if (sequence.problem != params.problem_index) continue;
    const int strand = static_cast<int>(unit % strands);
    const ColumnRestorer<Element> restorer(
        params, sequence, sequence.batch_begin + strand / params.num_kv_heads,
        strand % params.num_kv_heads);
    for (int row = blockIdx.y * kRowsPerShare; row < sequence.len_q;
         row += gridDim.y * kRowsPerShare) {
      restorer.Run(row, min(sequence.len_q, row + kRowsPerShare));
    }
  }
}

}  // namespace

RestoreParams RestoreParamsOf(const AttentionProblem& problem,
                              const ProblemRecord& record,
                              const SequenceRecord* device_sequences,
                              int32_t num_sequences, int32_t problem_index) {
  RestoreParams params = {};
  params.problem = record;
  params.v = problem.v;
  params.sequences = device_sequences;
  params.num_sequences = num_sequences;
  params.problem_index = problem_index;
  params.num_kv_heads = static_cast<int32_t>(problem.num_kv_heads);
  params.batch_count =
      static_cast<int32_t>(problem.sequences.size() == 1 ? problem.batch : 1);
  params.is_bf16 = problem.dtype == DataType::kBFloat16;
  return params;
}

cudaError_t LaunchRestore(const RestoreParams& params, cudaStream_t stream) {
  constexpr int64_t kMostBlocks = 1 << 20;
  constexpr unsigned kRowShares = 16;
  const int64_t units =
      int64_t{params.num_sequences} * params.batch_count * params.num_kv_heads;
  if (units == 0) return cudaSuccess;
  const dim3 grid(
      static_cast<unsigned>(units < kMostBlocks ? units : kMostBlocks),
      kRowShares);
  if (params.is_bf16) {
    RestoreKernel<__nv_bfloat16><<<grid, kThreads, 0, stream>>>(params);
  } else {
    RestoreKernel<__half><<<grid, kThreads, 0, stream>>>(params);
  }
  return cudaGetLastError();
}

}  // namespace attendant::kernels::sm90
