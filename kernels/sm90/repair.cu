// One block per (sequence, head) and share of rows. Slow and simple: it runs
// only when a launch left a value that is not finite.
#include "kernels/sm90/ptx/math.cuh"
#include "kernels/sm90/repair.h"
#include "kernels/sm90/tile_info.cuh"

namespace attendant::kernels::sm90 {
namespace {

constexpr int kThreads = 256;  // keys of a step, and at least the columns of V
constexpr int kRowShares = 32;

template <typename Element>
__device__ float Load(const InputTensor& tensor, int64_t batch, int64_t row,
                      int64_t head, int64_t column) {
  const int64_t index = batch * tensor.batch_stride + row * tensor.row_stride +
                        head * tensor.head_stride + column;
  return static_cast<float>(static_cast<const Element*>(tensor.data)[index]);
}

struct RowPlace {
  const SequenceRecord* sequence;
  int batch, head, row;
};

template <typename Element>
class RowRepair {
 public:
  __device__ RowRepair(const RepairParams& params, const RowPlace& place)
      : params_(params), place_(place), sequence_(*place.sequence) {
    const ProblemRecord& problem = params.problem;
    out_ = place.batch * problem.out_batch_stride +
           (int64_t{sequence_.q_begin} + place.row) * problem.out_row_stride +
           place.head * problem.out_head_stride;
  }

  // Same for all threads.
  __device__ bool IsDamaged() const {
    const int column = threadIdx.x;
    bool damaged = false;
    if (column < params_.problem.head_dim_v) {
      damaged = !isfinite(
          params_.problem.out_is_fp32
              ? static_cast<float*>(params_.problem.out)[out_ + column]
              : static_cast<float>(
                    static_cast<Element*>(params_.problem.out)[out_ + column]));
    }
    return __syncthreads_or(damaged);
  }

  __device__ void Run() const {
    __shared__ float p[kThreads];
    const int begin = max(0, place_.row + sequence_.low_offset);
    const int end = min(sequence_.len_kv, place_.row + sequence_.high_offset);
    float maximum = -INFINITY;
    for (int j = begin + threadIdx.x; j < end; j += kThreads) {
      maximum = fmaxf(maximum, Logit(j));
    }
    p[threadIdx.x] = maximum;
    __syncthreads();
    for (int i = 0; i < kThreads; ++i) maximum = fmaxf(maximum, p[i]);
    float sum = 0.0f;
    float o = 0.0f;
    for (int first = begin; first < end; first += kThreads) {
      __syncthreads();
      const int key = first + static_cast<int>(threadIdx.x);
      p[threadIdx.x] =
          key < end && maximum != -INFINITY ? exp2f(Logit(key) - maximum) : 0.f;
      __syncthreads();
      for (int i = 0; i < min(kThreads, end - first); ++i) {
        sum += p[i];
        if (static_cast<int>(threadIdx.x) < params_.problem.head_dim_v) {
          o += p[i] * V(first + i);
        }
      }
    }
    Store(sum == 0.0f ? 0.0f : o / (sum + Sink(maximum)));
  }

 private:
  __device__ int KvHead() const {
    return place_.head / params_.problem.group_size;
  }

  // In log2 units.
  __device__ float Logit(int key) const {
    float dot = 0.0f;
    for (int d = 0; d < params_.head_dim; ++d) {
      dot += Load<Element>(params_.q, place_.batch,
                           int64_t{sequence_.q_begin} + place_.row, place_.head,
                           d) *
             Load<Element>(params_.k, place_.batch,
                           int64_t{sequence_.kv_begin} + key, KvHead(), d);
    }
    float s = dot * params_.softmax_scale;
    const ProblemRecord& problem = params_.problem;
    if (problem.softcap > 0) s = problem.softcap * tanhf(s / problem.softcap);
    if (problem.slopes != nullptr) {
      const float slope =
          problem
              .slopes[place_.batch * problem.slopes_batch_stride + place_.head];
      s -= slope * fabsf(static_cast<float>(place_.row +
                                            sequence_.diagonal_shift - key));
    }
    return s * kLog2E;
  }

  __device__ float V(int key) const {
    return Load<Element>(params_.v, place_.batch,
                         int64_t{sequence_.kv_begin} + key, KvHead(),
                         threadIdx.x);
  }

  __device__ float Sink(float maximum) const {
    if (params_.problem.sinks == nullptr) return 0.0f;
    return exp2f(params_.problem.sinks[place_.head] * kLog2E - maximum);
  }

  __device__ void Store(float value) const {
    const int column = threadIdx.x;
    if (column >= params_.problem.head_dim_v) return;
    if (params_.problem.out_is_fp32) {
      static_cast<float*>(params_.problem.out)[out_ + column] = value;
    } else {
      static_cast<Element*>(params_.problem.out)[out_ + column] =
          static_cast<Element>(value);
    }
  }

  const RepairParams& params_;
  const RowPlace& place_;
  const SequenceRecord& sequence_;
  int64_t out_;
};

template <typename Element>
__global__ void __launch_bounds__(kThreads)
    RepairKernel(const __grid_constant__ RepairParams params) {
  const int units = params.batch_count * params.num_heads;
  for (int64_t unit = blockIdx.x; unit < int64_t{params.num_sequences} * units;
       unit += gridDim.x) {
    const SequenceRecord& sequence = params.sequences[unit / units];
    if (sequence.problem != params.problem_index) continue;
    const int head = static_cast<int>(unit % units);
    for (int row = blockIdx.y; row < sequence.len_q; row += gridDim.y) {
      const RowPlace place{&sequence,
                           sequence.batch_begin + head / params.num_heads,
                           head % params.num_heads, row};
      const RowRepair<Element> repair(params, place);
      if (repair.IsDamaged()) repair.Run();
    }
  }
}

}  // namespace

RepairParams RepairParamsOf(const AttentionProblem& problem,
                            const ProblemRecord& record,
                            const SequenceRecord* device_sequences,
                            int32_t num_sequences, int32_t problem_index) {
  RepairParams params = {};
  params.problem = record;
  params.q = problem.q;
  params.k = problem.k;
  params.v = problem.v;
  params.sequences = device_sequences;
  params.num_sequences = num_sequences;
  params.problem_index = problem_index;
  params.num_heads = static_cast<int32_t>(problem.num_q_heads);
  params.batch_count =
      static_cast<int32_t>(problem.sequences.size() == 1 ? problem.batch : 1);
  params.head_dim = static_cast<int32_t>(problem.head_dim);
  params.softmax_scale = problem.softmax_scale;
  params.is_bf16 = problem.dtype == DataType::kBFloat16;
  return params;
}

cudaError_t LaunchRepair(const RepairParams& params, cudaStream_t stream) {
  constexpr unsigned kMostBlocks = 1 << 20;
  const int64_t units =
      int64_t{params.num_sequences} * params.batch_count * params.num_heads;
  if (units == 0) return cudaSuccess;
  const dim3 grid(
      static_cast<unsigned>(units < kMostBlocks ? units : kMostBlocks),
      kRowShares);
  if (params.is_bf16) {
    RepairKernel<__nv_bfloat16><<<grid, kThreads, 0, stream>>>(params);
  } else {
    RepairKernel<__half><<<grid, kThreads, 0, stream>>>(params);
  }
  return cudaGetLastError();
}

}  // namespace attendant::kernels::sm90
