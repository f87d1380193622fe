// Partial results in memory, their merging, and the final O and LSE.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/sm90/decode_item.cuh"
#include "kernels/sm90/decode_merge.cuh"
#include "kernels/sm90/tile_info.cuh"

namespace attendant::kernels::sm90 {

// Maxima (log2 units) and sums of a thread's two rows.
struct PartialRows {
  float m[2] = {-INFINITY, -INFINITY};
  float l[2] = {0.0f, 0.0f};
};

// What a thread's chunks came to so far. Registers hold the running chunk's O,
// so this one lies in memory: piece i of the thread at memory[i * kStride].
template <int kD, int kStride>
class Folded {
 public:
  explicit __device__ __forceinline__ Folded(float4* memory)
      : memory_(memory) {}

  __device__ __forceinline__ void Keep(const PartialRows& rows,
                                       const float (&o)[kD / 2]) {
    rows_ = rows;
#pragma unroll
    for (int i = 0; i < kD / 8; ++i) {
      memory_[i * kStride] =
          make_float4(o[4 * i], o[4 * i + 1], o[4 * i + 2], o[4 * i + 3]);
    }
  }

  // `rows` and `o` become what is kept, merged with them.
  __device__ __forceinline__ void MergeInto(PartialRows& rows,
                                            float (&o)[kD / 2]) {
    MergeFactors factors[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      factors[r] = Merge(rows_.m[r], rows_.l[r], rows.m[r], rows.l[r]);
    }
    rows = rows_;
#pragma unroll
    for (int i = 0; i < kD / 8; ++i) {
      const float4 a = memory_[i * kStride];
      o[4 * i] = MergeValue(a.x, o[4 * i], factors[0]);
      o[4 * i + 1] = MergeValue(a.y, o[4 * i + 1], factors[0]);
      o[4 * i + 2] = MergeValue(a.z, o[4 * i + 2], factors[1]);
      o[4 * i + 3] = MergeValue(a.w, o[4 * i + 3], factors[1]);
    }
  }

 private:
  float4* const memory_;
  PartialRows rows_;
};

// kTileQ rows of O (kHeadDim floats each), then (m, l) of each row.
template <typename Shape>
struct PartialSlot {
  float* base;

  static __device__ __forceinline__ PartialSlot Of(const DecodeParams& params,
                                                   const DecodeItem& item,
                                                   int slot) {
    const int64_t index =
        item.sequence->first_slot +
        static_cast<int64_t>(item.strand) * item.sequence->slots_per_strand +
        slot;
    return {params.partials + index * (Shape::kTileQ * (Shape::kHeadDim + 2))};
  }
  __device__ __forceinline__ float* o(int row) const {
    return base + row * Shape::kHeadDim;
  }
  __device__ __forceinline__ float2* rows(int row) const {
    return reinterpret_cast<float2*>(base + Shape::kTileQ * Shape::kHeadDim) +
           row;
  }
};

// Where a packed row's results go.
struct RowTarget {
  int64_t out;  // element
  float* lse;   // null = not asked
  float sink_log2;
};

__device__ __forceinline__ RowTarget TargetOf(const DecodeItem& item, int row) {
  const DecodeProblem& problem = *item.problem;
  const int packed = item.row0 + row;
  const int64_t position = item.sequence->q_begin + packed / problem.group_size;
  const int64_t head =
      item.kv_head * problem.group_size + packed % problem.group_size;
  return {item.batch * problem.out_batch_stride +
              position * problem.out_row_stride +
              head * problem.out_head_stride,
          problem.lse == nullptr
              ? nullptr
              : problem.lse + item.batch * problem.lse_batch_stride +
                    head * problem.lse_head_stride + position,
          problem.sinks == nullptr ? -INFINITY : problem.sinks[head] * kLog2E};
}

__device__ __forceinline__ float SlopeLog2(const DecodeItem& item, int packed) {
  const DecodeProblem& problem = *item.problem;
  if (problem.slopes == nullptr) return 0.0f;
  const int head =
      item.kv_head * problem.group_size + packed % problem.group_size;
  return problem.slopes[item.batch * problem.slopes_batch_stride + head] *
         kLog2E;
}

template <typename Element>
__device__ __forceinline__ Element Round(float value);
template <>
__device__ __forceinline__ __nv_bfloat16 Round<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}
template <>
__device__ __forceinline__ __half Round<__half>(float value) {
  return __float2half_rn(value);
}

// kCount neighbouring columns of one row. What is not finite once rounded may
// hold 0 * NaN from a masked position: the flag asks for the repair kernel.
template <typename Element, int kCount>
__device__ __forceinline__ void StoreColumns(const DecodeParams& params,
                                             const DecodeProblem& problem,
                                             int64_t out, int column,
                                             const float (&values)[kCount]) {
#pragma unroll
  for (int e = 0; e < kCount; ++e) {
    if (column + e >= problem.head_dim_v) return;
    float stored = values[e];
    if (problem.out_is_fp32) {
      static_cast<float*>(problem.out)[out + column + e] = stored;
    } else {
      const Element rounded = Round<Element>(stored);
      static_cast<Element*>(problem.out)[out + column + e] = rounded;
      stored = static_cast<float>(rounded);
    }
    if (!isfinite(stored)) *params.repair_flag = 1;
  }
}

// From registers: `row` is the thread's first, quad_lane its columns.
template <int kD, typename Element>
__device__ __forceinline__ void StoreFinalAs(const DecodeParams& params,
                                             const DecodeItem& item,
                                             const PartialRows& rows,
                                             const float (&o)[kD / 2], int row,
                                             int quad_lane) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (row + 8 * r >= item.num_rows) continue;
    const RowTarget target = TargetOf(item, row + 8 * r);
    const RowEnd end = FinishRow(rows.m[r], rows.l[r], target.sink_log2);
#pragma unroll
    for (int i = 0; i < kD / 8; ++i) {
      const float values[2] = {__fmul_rn(o[4 * i + 2 * r], end.inverse),
                               __fmul_rn(o[4 * i + 2 * r + 1], end.inverse)};
      StoreColumns<Element>(params, *item.problem, target.out,
                            8 * i + 2 * quad_lane, values);
    }
    if (target.lse != nullptr && quad_lane == 0) *target.lse = end.lse;
  }
}

}  // namespace attendant::kernels::sm90
