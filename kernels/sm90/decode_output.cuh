// Partial results in memory, their merging, and the final O and LSE.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/sm90/decode_item.cuh"
#include "kernels/sm90/decode_merge.cuh"
#include "kernels/sm90/decode_table.h"
#include "kernels/sm90/epilogue.cuh"
#include "kernels/sm90/ptx/bulk.cuh"
#include "kernels/sm90/ptx/mbarrier.cuh"
#include "kernels/sm90/tile_info.cuh"

namespace attendant::kernels::sm90 {

// Maxima (log2 units) and sums of a thread's two rows.
struct PartialRows {
  float m[2] = {-INFINITY, -INFINITY};
  float l[2] = {0.0f, 0.0f};

  // Of the rows' four threads, from each one's columns.
  __device__ __forceinline__ void ReduceSums() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      l[r] += __shfl_xor_sync(0xffffffffu, l[r], 1);
      l[r] += __shfl_xor_sync(0xffffffffu, l[r], 2);
    }
  }
};

// A thread's part of O, times what its rows' maxima ask for.
template <int kD>
__device__ __forceinline__ void RescaleO(const float (&rescale)[2],
                                         float (&o)[kD / 2]) {
  // Multiplying by 1 changes no bit, so the vote decides time alone.
  const bool needs = rescale[0] != 1.0f || rescale[1] != 1.0f;
  if (!__any_sync(0xffffffffu, needs)) return;
#pragma unroll
  for (int i = 0; i < kD / 2; ++i) o[i] *= rescale[i / 2 % 2];
}

// A partial result of a thread's two rows in memory: piece i of the thread at
// memory[i * kStride], since registers hold the running chunk's.
template <int kD, int kStride>
struct FoldedO {
  float4* memory;

  __device__ __forceinline__ void Keep(const float (&o)[kD / 2]) const {
#pragma unroll
    for (int i = 0; i < kD / 8; ++i) {
      memory[i * kStride] =
          make_float4(o[4 * i], o[4 * i + 1], o[4 * i + 2], o[4 * i + 3]);
    }
  }

  // `rows` and `o` become what is kept (`before`: its rows), merged with them.
  __device__ __forceinline__ void MergeInto(PartialRows before,
                                            PartialRows& rows,
                                            float (&o)[kD / 2]) const {
    MergeFactors factors[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      factors[r] = Merge(before.m[r], before.l[r], rows.m[r], rows.l[r]);
    }
    rows = before;
#pragma unroll
    for (int i = 0; i < kD / 8; ++i) {
      const float4 a = memory[i * kStride];
      o[4 * i] = MergeValue(a.x, o[4 * i], factors[0]);
      o[4 * i + 1] = MergeValue(a.y, o[4 * i + 1], factors[0]);
      o[4 * i + 2] = MergeValue(a.z, o[4 * i + 2], factors[1]);
      o[4 * i + 3] = MergeValue(a.w, o[4 * i + 3], factors[1]);
    }
  }
};

// What a thread's chunks of one item came to: those of the running quad, in
// shared memory where it has room; the octet's quads and the octets before
// them, in the block's scratch (global memory that nobody else touches).
template <typename Shape>
class KeptLevels {
 public:
  static constexpr int kD = Shape::kHeadDim;
  // float4s of one scratch level, a block: O, then the rows.
  static constexpr int kLevel = ScratchFloats(kD, Shape::kTileQ) / 4;

  template <typename Storage>
  __device__ __forceinline__ KeptLevels(const DecodeParams& params,
                                        Storage& storage)
      : scratch_(reinterpret_cast<float4*>(params.scratch) +
                 int64_t{blockIdx.x} * Shape::kScratchLevels * kLevel +
                 threadIdx.x),
        quad_{Shape::kKeepsInShared
                  ? storage.kept[threadIdx.x / 128][0] + threadIdx.x % 128
                  : scratch_ + 2 * kLevel} {}

  // A chunk's result; `next`: the number of the item's next one.
  __device__ __forceinline__ void Add(int next, PartialRows& rows,
                                      float (&o)[kD / 2]) {
    if (has_quad_) quad_.MergeInto(quad_rows_, rows, o);
    has_quad_ = next % kSplitQuad != 0;
    if (has_quad_) {
      quad_rows_ = rows;
      quad_.Keep(o);
      return;
    }
    // Of the octet (0), else of the strand (1).
#pragma unroll 1
    for (int level = 0; level < 2; ++level) {
      if (has_levels_ >> level & 1) MergeScratch(level, rows, o);
      if (level == 1 || next % kSplitOctet != 0) {
        KeepScratch(level, rows, o);
        has_levels_ |= 1 << level;
        return;
      }
      has_levels_ &= ~(1 << level);
    }
  }

  // `rows` and `o`: the last chunk's, then the item's.
  __device__ __forceinline__ void Finish(PartialRows& rows,
                                         float (&o)[kD / 2]) const {
    if (has_quad_) quad_.MergeInto(quad_rows_, rows, o);
#pragma unroll 1
    for (int level = 0; level < 2; ++level) {
      if (has_levels_ >> level & 1) MergeScratch(level, rows, o);
    }
  }

 private:
  using Scratch = FoldedO<kD, Shape::kConsumers>;

  __device__ __forceinline__ void KeepScratch(int level,
                                              const PartialRows& rows,
                                              const float (&o)[kD / 2]) const {
    float4* const memory = scratch_ + level * kLevel;
    memory[kD / 8 * Shape::kConsumers] =
        make_float4(rows.m[0], rows.m[1], rows.l[0], rows.l[1]);
    Scratch{memory}.Keep(o);
  }
  __device__ __forceinline__ void MergeScratch(int level, PartialRows& rows,
                                               float (&o)[kD / 2]) const {
    float4* const memory = scratch_ + level * kLevel;
    const float4 kept = memory[kD / 8 * Shape::kConsumers];
    PartialRows before;
    before.m[0] = kept.x;
    before.m[1] = kept.y;
    before.l[0] = kept.z;
    before.l[1] = kept.w;
    Scratch{memory}.MergeInto(before, rows, o);
  }

  float4* const scratch_;
  const FoldedO<kD, Shape::kKeepsInShared ? 128 : Shape::kConsumers> quad_;
  PartialRows quad_rows_;
  bool has_quad_ = false;
  int has_levels_ = 0;  // a bit each
};

// In a tile's rows of O, row-major floats, where the 16 bytes number `piece` of
// `row` lie within the row. Turned within 128 bytes, so that neither PutRows (a
// warp holds two columns of each of 8 rows) nor who reads rows meets bank
// conflicts.
__device__ __forceinline__ int TurnedPiece(int row, int piece) {
  return piece ^ 2 * (row % 4);
}

// A thread's part of a partial result, from registers to a tile's rows of O and
// their (m, l), in shared or global memory. `row`: the thread's first.
template <int kD>
__device__ __forceinline__ void PutRows(float* tile, float2* ml,
                                        const PartialRows& rows,
                                        const float (&o)[kD / 2], int row,
                                        int quad_lane) {
  float* const base = tile + row * kD + 2 * quad_lane;
#pragma unroll
  for (int i = 0; i < kD / 8; ++i) {
    float* const place = base + 8 * (i % 4 ^ row % 4) + i / 4 * 32;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      *reinterpret_cast<float2*>(place + 8 * r * kD) =
          make_float2(o[4 * i + 2 * r], o[4 * i + 2 * r + 1]);
    }
  }
  if (quad_lane != 0) return;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    ml[row + 8 * r] = make_float2(rows.m[r], rows.l[r]);
  }
}

// A partial result in global memory: a tile's rows of O (see TurnedPiece), then
// (m, l) of each.
template <typename Shape>
struct PartialSlot {
  static constexpr int kFloats = Shape::kTileQ * (Shape::kHeadDim + 2);
  float* base;

  __device__ __forceinline__ PartialSlot(const DecodeParams& params, int slot)
      : base(params.partials + static_cast<int64_t>(slot) * kFloats) {}
  __device__ __forceinline__ float* o(int row) const {
    return base + row * Shape::kHeadDim;
  }
  __device__ __forceinline__ float2* rows(int row) const {
    return reinterpret_cast<float2*>(base + Shape::kTileQ * Shape::kHeadDim) +
           row;
  }

  // `count` rows from `first` on, of a tile in shared memory; one thread, whose
  // group of copies they are.
  __device__ __forceinline__ void Store(const float* tile, const float2* ml,
                                        int first, int count) const {
    const int even = (count + 1) / 2 * 2;  // copies are of 16 bytes
    ptx::bulk_store(o(first), ptx::smem_address(tile + first * Shape::kHeadDim),
                    even * Shape::kHeadDim * 4);
    ptx::bulk_store(rows(first), ptx::smem_address(ml + first), even * 8);
    ptx::bulk_commit();
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
  const int group = problem.group_size;
  const int row_of_len_q = SmallDivisor(group).Divide(packed);
  const int64_t position = item.sequence->q_begin + row_of_len_q;
  const int64_t head = item.kv_head * group + packed - row_of_len_q * group;
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

// kCount (2 or 4) neighbouring columns of one row, the first a multiple of
// kCount. What is not finite once rounded may hold 0 * NaN from a masked
// position: the flag asks for the repair kernel.
template <typename Element, int kCount>
__device__ __forceinline__ void StoreColumns(const DecodeParams& params,
                                             const DecodeProblem& problem,
                                             int64_t out, int column,
                                             const float (&values)[kCount]) {
  if (column >= problem.head_dim_v) return;
  if (problem.out_is_vectorized && !problem.out_is_fp32) {
    uint32_t words[kCount / 2];
    uint32_t not_finite = 0;
#pragma unroll
    for (int e = 0; e < kCount; e += 2) {
      words[e / 2] = ptx::pack<Element>(  // no -0, see FoldedVector
          values[e] + 0.0f, values[e + 1] + 0.0f);
      CollectNonFinite<Element>(words[e / 2], not_finite);
    }
    if (not_finite != 0) *params.repair_flag = 1;
    void* const target = static_cast<Element*>(problem.out) + out + column;
    if constexpr (kCount == 4) {
      *static_cast<uint2*>(target) = make_uint2(words[0], words[1]);
    } else {
      *static_cast<uint32_t*>(target) = words[0];
    }
    return;
  }
#pragma unroll
  for (int e = 0; e < kCount; ++e) {
    if (column + e >= problem.head_dim_v) return;
    float stored = values[e] + 0.0f;
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

// From registers: `row` is the thread's first, quad_lane its columns. Called by
// whole warps.
template <int kD, typename Element>
__device__ __forceinline__ void StoreFinal(const DecodeParams& params,
                                           const DecodeItem& item,
                                           const PartialRows& rows,
                                           const float (&o)[kD / 2], int row,
                                           int quad_lane) {
  const DecodeProblem& problem = *item.problem;
  const bool is_vectorized = problem.out_is_vectorized && !problem.out_is_fp32;
  const int head_dim_v = problem.head_dim_v;
  uint32_t not_finite = 0;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const bool is_there = row + 8 * r < item.num_rows;
    const RowTarget target = TargetOf(item, is_there ? row + 8 * r : 0);
    const RowEnd end = FinishRow(rows.m[r], rows.l[r], target.sink_log2);
    if (target.lse != nullptr && is_there && quad_lane == 0) {
      *target.lse = end.lse;
    }
    if (is_vectorized) {
      Element* const out = static_cast<Element*>(problem.out) + target.out;
      uint32_t seen = 0;
#pragma unroll
      for (int k = 0; k < kD / 32; ++k) {
        uint32_t w[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int i = 4 * (4 * k + j) + 2 * r;
          w[j] = ptx::pack<Element>(  // no -0, see FoldedVector
              __fmul_rn(o[i], end.inverse) + 0.0f,
              __fmul_rn(o[i + 1], end.inverse) + 0.0f);
          CollectNonFinite<Element>(w[j], seen);
        }
        TransposeQuad(w, quad_lane);
        const int column = 8 * (4 * k + quad_lane);
        if (is_there && column < head_dim_v) {
          *reinterpret_cast<uint4*>(out + column) =
              make_uint4(w[0], w[1], w[2], w[3]);
        }
      }
      if (is_there) not_finite |= seen;
    } else if (is_there) {
#pragma unroll
      for (int i = 0; i < kD / 8; ++i) {
        const float values[2] = {__fmul_rn(o[4 * i + 2 * r], end.inverse),
                                 __fmul_rn(o[4 * i + 2 * r + 1], end.inverse)};
        StoreColumns<Element>(params, problem, target.out,
                              8 * i + 2 * quad_lane, values);
      }
    }
  }
  if (not_finite != 0) *params.repair_flag = 1;
}

}  // namespace attendant::kernels::sm90
