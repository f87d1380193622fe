// Computes again every row of O that is not finite, key by key, touching only
// keys the row may see: the matrix units multiply P = 0 of a masked key by what
// V holds there, and 0 * NaN is NaN. What is visible and not finite stays so.
// One warp a row: rare, so simple rather than fast. LSE was right already.
#include "kernels/cuda/cuda_status.h"
#include "kernels/sm80/epilogue.cuh"
#include "kernels/sm80/launchers.h"
#include "kernels/sm80/rows.cuh"
#include "kernels/sm80/score_mod.cuh"

namespace attendant::kernels::sm80 {
namespace {

constexpr int kWarps = 4;
constexpr int kColumns = 256 / 32;  // a lane's, at most: lane, lane + 32, ...

template <typename Element>
__device__ float ToFloat(Element value);
template <>
__device__ float ToFloat(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
template <>
__device__ float ToFloat(__half value) {
  return __half2float(value);
}

// Elements lane, lane + 32, ... of a row of `size`; 0 past its end.
template <typename Element>
__device__ void LoadRow(const uint16_t* row, int size,
                        float (&values)[kColumns]) {
  const auto* elements = reinterpret_cast<const Element*>(row);
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    const int column = threadIdx.x % 32 + 32 * i;
    values[i] = column < size ? ToFloat(elements[column]) : 0.0f;
  }
}

__device__ float Dot(const float (&a)[kColumns], const float (&b)[kColumns]) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) sum = fmaf(a[i], b[i], sum);
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    sum += __shfl_xor_sync(0xffffffff, sum, lanes);
  }
  return sum;
}

template <typename Element>
__device__ bool RowIsFinite(const TileWork& work, int64_t first) {
  bool finite = true;
  for (int column = threadIdx.x % 32; column < work.head_dim_v; column += 32) {
    finite &=
        work.output_fp32
            ? isfinite(static_cast<const float*>(work.out)[first + column])
            : isfinite(ToFloat(
                  static_cast<const Element*>(work.out)[first + column]));
  }
  return __all_sync(0xffffffff, finite);
}

// O of one row, by the online softmax of online_softmax.cuh.
template <typename Element>
__device__ void RecomputeRow(const TileWork& work, int32_t position,
                             int32_t head, float (&o)[kColumns]) {
  float q[kColumns], k[kColumns], v[kColumns];
  LoadRow<Element>(work.q + position * work.q_row + head * work.q_head,
                   work.head_dim, q);
  float m = -INFINITY;
  float l = 0.0f;
  const int32_t begin = max(0, position + work.lo_shift);
  const int32_t end = min(work.len_kv, position + work.hi_shift);
  for (int32_t key = begin; key < end; ++key) {
    if (work.mask_kind != DeviceMask::kNone &&
        !MaskAllows(work.mask_kind, MaskRow(work, position, head),
                    work.mask_key + key)) {
      continue;
    }
    LoadRow<Element>(work.kv[0].data + key * work.kv[0].row, work.head_dim, k);
    LoadRow<Element>(work.kv[1].data + key * work.kv[1].row, work.head_dim_v,
                     v);
    const float x = ModifiedScore(work, position, head, key, Dot(q, k));
    const float new_m = fmaxf(m, x);
    const float base = new_m == -INFINITY ? 0.0f : new_m;
    const float factor = ptx::ex2((m - base) * kLog2E);
    const float p = ptx::ex2((x - base) * kLog2E);
    m = new_m;
    l = fmaf(l, factor, p);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) o[i] = fmaf(o[i], factor, p * v[i]);
  }
  const float sink = work.sinks == nullptr ? -INFINITY : work.sinks[head];
  const RowEnd row_end = EndRow(m, l, sink, /*natural=*/true);
#pragma unroll
  for (int i = 0; i < kColumns; ++i) o[i] = EndValue(o[i], row_end.inverse);
}

template <typename Element>
__global__ void __launch_bounds__(kWarps * 32)
    RepairKernel(const __grid_constant__ LaunchArgs args) {
  const int64_t index =
      static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (index >= args.num_rows) return;
  const Blob blob = ViewBlob(args);
  const OutputRow row = LocateRow(args, blob, index);
  const TileWork work = WorkOfRow(blob, row);
  const int32_t head = row.head % row.run->pack;
  const int64_t first = head * work.out_head + row.position * work.out_row;
  if (RowIsFinite<Element>(work, first)) return;

  float o[kColumns] = {};
  RecomputeRow<Element>(work, row.position, head, o);
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    const int column = threadIdx.x % 32 + 32 * i;
    if (column < work.head_dim_v) {
      StoreElement(work, first + column, o[i], Element());
    }
  }
}

}  // namespace

absl::Status LaunchRepair(DataType dtype, const LaunchArgs& args,
                          cudaStream_t stream) {
  const auto blocks =
      static_cast<unsigned>((args.num_rows + kWarps - 1) / kWarps);
  if (dtype == DataType::kBFloat16) {
    RepairKernel<__nv_bfloat16><<<blocks, kWarps * 32, 0, stream>>>(args);
  } else {
    RepairKernel<__half><<<blocks, kWarps * 32, 0, stream>>>(args);
  }
  return cuda::CudaStatus(cudaGetLastError(), "sm80 repair");
}

}  // namespace attendant::kernels::sm80
