// The second kernel of a decode launch: merges strands of several items.
#pragma once

#include <cstdint>

#include "kernels/sm90/decode_item.cuh"
#include "kernels/sm90/decode_merge.cuh"
#include "kernels/sm90/decode_output.cuh"
#include "kernels/sm90/ptx/grid.cuh"

namespace attendant::kernels::sm90 {

// Rows [row_begin, row_end) of a strand: its slots folded in index order, by
// `num_threads` threads, kBatch slots in flight.
template <typename Shape, typename Element>
__device__ __forceinline__ void CombineStrand(const DecodeParams& params,
                                              const DecodeItem& item,
                                              int thread, int num_threads,
                                              int row_begin, int row_end) {
  constexpr int kQuads = Shape::kHeadDim / 4;
  constexpr int kBatch = 16;
  const int slots = item.sequence->slots_per_strand;
  const int64_t slot_floats = Shape::kTileQ * (Shape::kHeadDim + 2);
  const PartialSlot<Shape> first = PartialSlot<Shape>::Of(params, item, 0);
  for (int i = row_begin * kQuads + thread; i < row_end * kQuads;
       i += num_threads) {
    const int row = i / kQuads;
    const int column = i % kQuads * 4;
    const float* o = first.o(row) + column;
    const float* rows = reinterpret_cast<const float*>(first.rows(row));
    float m = -INFINITY;
    float l = 0.0f;
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int begin = 0; begin < slots; begin += kBatch) {
      float4 next[kBatch];
      float2 next_ml[kBatch];
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        if (begin + j >= slots) continue;
        const int64_t offset = (begin + j) * slot_floats;
        next[j] = __ldcg(reinterpret_cast<const float4*>(o + offset));
        next_ml[j] = __ldcg(reinterpret_cast<const float2*>(rows + offset));
      }
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        if (begin + j >= slots) continue;
        if (begin + j == 0) {  // nothing to merge with
          m = next_ml[0].x;
          l = next_ml[0].y;
          sum[0] = next[0].x;
          sum[1] = next[0].y;
          sum[2] = next[0].z;
          sum[3] = next[0].w;
          continue;
        }
        const MergeFactors factors = Merge(m, l, next_ml[j].x, next_ml[j].y);
        sum[0] = MergeValue(sum[0], next[j].x, factors);
        sum[1] = MergeValue(sum[1], next[j].y, factors);
        sum[2] = MergeValue(sum[2], next[j].z, factors);
        sum[3] = MergeValue(sum[3], next[j].w, factors);
      }
    }
    const RowTarget target = TargetOf(item, row);
    const RowEnd end = FinishRow(m, l, target.sink_log2);
    float values[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) values[e] = __fmul_rn(sum[e], end.inverse);
    StoreColumns<Element>(params, *item.problem, target.out, column, values);
    if (target.lse != nullptr && column == 0) *target.lse = end.lse;
  }
}

// Merges strands of several items: a block takes kCombineRows packed rows of
// one.
inline constexpr int kCombineRows = 8;
inline constexpr int kCombineThreads = 256;

template <typename Shape, typename Element, bool kGrouped>
__global__ void __launch_bounds__(kCombineThreads)
    DecodeCombineKernel(const __grid_constant__ DecodeParams params) {
  // Strands are numbered through all records.
  constexpr int kParts = Shape::kTileQ / kCombineRows;
  const int strand = blockIdx.x / kParts;
  DecodeItem item = {&params.problem, &params.sequence, nullptr};
  if constexpr (kGrouped) {
    int begin = 0;
    int end = params.num_sequences;
    while (end - begin > 1) {
      const int middle = (begin + end) / 2;
      (params.global_sequences[middle].first_strand <= strand ? begin : end) =
          middle;
    }
    item.sequence = params.global_sequences + begin;
    item.problem = params.global_problems + item.sequence->problem;
  }
  if (item.sequence->slots_per_strand == 0) return;
  ptx::grid_wait_for_previous();
  SetStrand(item, strand - item.sequence->first_strand, Shape::kTileQ);
  const int row = blockIdx.x % kParts * kCombineRows;
  CombineStrand<Shape, Element>(params, item, threadIdx.x, kCombineThreads, row,
                                min(item.num_rows, row + kCombineRows));
}

}  // namespace attendant::kernels::sm90
