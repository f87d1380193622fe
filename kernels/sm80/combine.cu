// Folds the partials of split keys into O and LSE, in the splits' order: with
// M = max m_s, weights w_s = exp_u(m_s - M), l = sum w_s l_s, O = sum w_s O_s /
// l. One warp a row; bound by reading the partials once.
#include <algorithm>

#include "kernels/cuda/cuda_status.h"
#include "kernels/sm80/epilogue.cuh"
#include "kernels/sm80/launchers.h"
#include "kernels/sm80/rows.cuh"

namespace attendant::kernels::sm80 {
namespace {

constexpr int kWarps = 4;
constexpr int kColumns = 256 / 32;  // a lane's, at most: lane, lane + 32, ...

template <typename Element>
__global__ void __launch_bounds__(kWarps * 32)
    CombineKernel(const __grid_constant__ LaunchArgs args) {
  const int lane = threadIdx.x % 32;
  const int64_t index =
      static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (index >= args.num_rows) return;
  const Blob blob = ViewBlob(args);
  const OutputRow row = LocateRow(args, blob, index);
  const Run& run = *row.run;
  const TileWork work = WorkOfRow(blob, row);
  const float* ml =
      args.partials + run.partial_ml + row.in_run * run.splits * 2;
  const float* partial =
      args.partials + run.partial_o + row.in_run * run.splits * work.head_dim_v;

  float m = -INFINITY;
  for (int s = 0; s < run.splits; ++s) m = fmaxf(m, ml[2 * s]);
  float l = 0.0f;
  float o[kColumns] = {};
  for (int s = 0; s < run.splits; ++s) {
    const float l_s = ml[2 * s + 1];
    if (l_s == 0.0f) continue;  // saw no key: its O was not written
    const float over = ml[2 * s] - m;
    const float weight = ptx::ex2(args.natural_units ? over * kLog2E : over);
    l += weight * l_s;
    const float* o_s = partial + static_cast<int64_t>(s) * work.head_dim_v;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const int column = lane + 32 * i;
      if (column < work.head_dim_v) o[i] = fmaf(weight, o_s[column], o[i]);
    }
  }

  const int32_t head = row.head % run.pack;
  const float sink = work.sinks == nullptr ? -INFINITY : work.sinks[head];
  const RowEnd end = EndRow(m, l, sink, args.natural_units);
  const int64_t first = head * work.out_head + row.position * work.out_row;
  bool broken = false;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    const int column = lane + 32 * i;
    if (column >= work.head_dim_v) continue;
    broken |= l > 0.0f && !isfinite(o[i]);
    StoreElement(work, first + column, EndValue(o[i], end.inverse), Element());
  }
  if (broken) *args.repair_flag = 1;
  if (lane == 0 && work.lse != nullptr) {
    work.lse[head * work.lse_head + row.position] = end.lse;
  }
}

}  // namespace

absl::Status LaunchCombine(DataType dtype, const LaunchArgs& args,
                           cudaStream_t stream) {
  const auto blocks =
      static_cast<unsigned>((args.num_rows + kWarps - 1) / kWarps);
  if (dtype == DataType::kBFloat16) {
    CombineKernel<__nv_bfloat16><<<blocks, kWarps * 32, 0, stream>>>(args);
  } else {
    CombineKernel<__half><<<blocks, kWarps * 32, 0, stream>>>(args);
  }
  return cuda::CudaStatus(cudaGetLastError(), "sm80 combine");
}

}  // namespace attendant::kernels::sm80
