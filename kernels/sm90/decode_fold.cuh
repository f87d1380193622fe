// Folding shares of a strand's partial results, which copies bring into shared
// memory: what the combine kernel and the blocks that merge in place share.
//
// A share is some rows of a tile, of all slots. A thread takes kColumns columns
// of one row, and goes through the slots in a loop that holds little: in a
// short launch each instruction is fetched from L2 the first time, some 6
// clocks each.
#pragma once

#include <cstdint>

#include "kernels/sm90/decode_item.cuh"
#include "kernels/sm90/decode_merge.cuh"
#include "kernels/sm90/decode_output.cuh"
#include "kernels/sm90/decode_table.h"

namespace attendant::kernels::sm90 {

// Where a share lies: `rows` rows of each slot, slot after slot.
template <int kD>
struct StagedShare {
  float* o;
  float2* ml;
  int rows;

  __device__ __forceinline__ StagedShare(float* o, float2* ml, int rows)
      : o(o), ml(ml), rows(rows) {}
  __device__ __forceinline__ float* o_of(int slot) const {
    return o + slot * rows * kD;
  }
  __device__ __forceinline__ float2* ml_of(int slot) const {
    return ml + slot * rows;
  }
};

// Some columns of a strand's row, slots appended in order.
template <int kD>
class RowFold {
 public:
  static constexpr int kColumns = 8;            // of a thread, in two pieces
  static constexpr int kLanes = kD / kColumns;  // that take a row

  // `slots`: of the strand; `lane`: of kLanes.
  __device__ __forceinline__ RowFold(const DecodeItem& item, int slots,
                                     int lane)
      : lane_(lane),
        next_(item.first_unit),
        end_(next_ + slots),
        in_quad_(InQuad(item)),
        in_octet_(InOctet(item)) {}

  // The share's first `count` slots, which are the strand's next ones; `row`:
  // of the tile, number `index` of the share. Slot number `own` lies in the
  // tile `own_o` and `own_ml` instead.
  __device__ __forceinline__ void Append(const StagedShare<kD>& share,
                                         int count, int row, int index,
                                         int own = -1,
                                         const float* own_o = nullptr,
                                         const float2* own_ml = nullptr) {
    const int piece = 4 * TurnedPiece(row, lane_);
    const float* o = share.o + index * kD + piece;
    const float2* ml = share.ml + index;
#pragma unroll 1
    for (int j = 0; j < count; ++j, o += share.rows * kD, ml += share.rows) {
      const float* const from = j == own ? own_o + row * kD + piece : o;
      const float2 row_ml = *(j == own ? own_ml + row : ml);
      Row slot;
      slot.m = row_ml.x;
      slot.l = row_ml.y;
#pragma unroll
      for (int v = 0; v < kColumns / 4; ++v) {
        const float4 four = *reinterpret_cast<const float4*>(from + v * kStep);
        slot.o[4 * v] = four.x;
        slot.o[4 * v + 1] = four.y;
        slot.o[4 * v + 2] = four.z;
        slot.o[4 * v + 3] = four.w;
      }
      quad_.Append(slot);
      const bool is_last = ++next_ == end_;
      if ((next_ & in_quad_) != 0 && !is_last) continue;
      octet_.Append(quad_);
      quad_ = Row();
      if ((next_ & in_octet_) != 0 && !is_last) continue;
      strand_.Append(octet_);
      octet_ = Row();
    }
  }

  // Whether AppendInPairs serves: the strand's slots are one octet of chunks,
  // or two.
  static __device__ __forceinline__ bool CanPair(const DecodeItem& item) {
    return item.unit == 1 && item.first_unit % kSplitOctet == 0 &&
           (item.slots == kSplitOctet || item.slots == 2 * kSplitOctet);
  }

  // As Append, all of the strand's slots, by 2 * kLanes threads that lie side
  // by side, of which the first half gets the result. Few rows leave threads
  // without work, and each step of a fold waits for the one before: here a
  // thread takes a slot to compute what its merge multiplies by, and hands it
  // on; then one half folds the first slots, the other the rest. Called by
  // whole warps.
  __device__ __forceinline__ void AppendInPairs(const StagedShare<kD>& share,
                                                int slots, int row, int index,
                                                int own, const float* own_o,
                                                const float2* own_ml) {
    static_assert(2 * kLanes >= 2 * kSplitOctet);
    const int mine = threadIdx.x % (2 * kLanes);
    const int group = threadIdx.x % 32 - mine;
    float2 ml = make_float2(-INFINITY, 0.0f);
    if (mine < slots) {
      ml = *(mine == own ? own_ml + row : share.ml_of(mine) + index);
    }
    // Maxima of the quad up to this slot, and up to the one before.
    float reached = ml.x;
#pragma unroll
    for (int step = 1; step < kSplitQuad; step *= 2) {
      reached = fmaxf(reached,
                      __shfl_up_sync(0xffffffffu, reached, step, kSplitQuad));
    }
    float before = __shfl_up_sync(0xffffffffu, reached, 1, kSplitQuad);
    if (mine % kSplitQuad == 0) before = -INFINITY;
    float no_sum = 0.0f;
    const MergeFactors factors = Merge(before, no_sum, ml.x, 0.0f);
    const int piece = 4 * TurnedPiece(row, lane_);
    const int half = slots / 2;
    const int begin = mine >= kLanes ? half : 0;
#pragma unroll 1
    for (int i = 0; i < half; i += kSplitQuad) {
#pragma unroll
      for (int k = 0; k < kSplitQuad; ++k) {
        const int j = begin + i + k;
        const MergeFactors here = {
            __shfl_sync(0xffffffffu, factors.a, group + j),
            __shfl_sync(0xffffffffu, factors.b, group + j)};
        const float l = __shfl_sync(0xffffffffu, ml.y, group + j);
        const float* const from =
            (j == own ? own_o + row * kD : share.o_of(j) + index * kD) + piece;
        quad_.l = k == 0 ? l * here.b : MergeValue(quad_.l, l, here);
#pragma unroll
        for (int v = 0; v < kColumns / 4; ++v) {
          const float4 four =
              *reinterpret_cast<const float4*>(from + v * kStep);
          const float values[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            float& o = quad_.o[4 * v + e];
            o = k == 0 ? values[e] * here.b : MergeValue(o, values[e], here);
          }
        }
      }
      quad_.m =
          __shfl_sync(0xffffffffu, reached, group + begin + i + kSplitQuad - 1);
      if (i == 0) {
        octet_ = quad_;
      } else {
        octet_.Append(quad_);
      }
    }
    // The other half's.
    Row next;
    next.m = __shfl_down_sync(0xffffffffu, octet_.m, kLanes);
    next.l = __shfl_down_sync(0xffffffffu, octet_.l, kLanes);
#pragma unroll
    for (int e = 0; e < kColumns; ++e) {
      next.o[e] = __shfl_down_sync(0xffffffffu, octet_.o[e], kLanes);
    }
    strand_ = octet_;
    strand_.Append(next);
  }

  // To `target`, the row's, if `is_real`.
  template <typename Element>
  __device__ __forceinline__ void Store(const DecodeParams& params,
                                        const DecodeItem& item,
                                        const RowTarget& target,
                                        bool is_real) const {
    const RowEnd end = FinishRow(strand_.m, strand_.l, target.sink_log2);
    if (target.lse != nullptr && lane_ == 0 && is_real) *target.lse = end.lse;
    float values[kColumns];
#pragma unroll
    for (int e = 0; e < kColumns; ++e) {
      values[e] = __fmul_rn(strand_.o[e], end.inverse) + 0.0f;
    }
    const DecodeProblem& problem = *item.problem;
    const int column = 4 * lane_;
    // What is rare stands aside: a jump over it costs a fetch as well.
    if (__builtin_expect(problem.out_is_vectorized && !problem.out_is_fp32,
                         1)) {
      uint32_t not_finite = 0;
      Element* const out =
          static_cast<Element*>(problem.out) + target.out + column;
#pragma unroll
      for (int v = 0; v < kColumns / 4; ++v) {
        uint32_t words[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          words[e] = ptx::pack<Element>(values[4 * v + 2 * e],
                                        values[4 * v + 2 * e + 1]);
          if (column + v * kStep < problem.head_dim_v) {
            CollectNonFinite<Element>(words[e], not_finite);
          }
        }
        if (column + v * kStep < problem.head_dim_v && is_real) {
          *reinterpret_cast<uint2*>(out + v * kStep) =
              make_uint2(words[0], words[1]);
        }
      }
      if (not_finite != 0 && is_real) *params.repair_flag = 1;
      return;
    }
    if (!is_real) return;
#pragma unroll
    for (int v = 0; v < kColumns / 4; ++v) {
      float piece[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) piece[e] = values[4 * v + e];
      StoreColumns<Element>(params, problem, target.out, column + v * kStep,
                            piece);
    }
  }

 private:
  using Row = FoldedRow<kColumns>;

  // Slots (chunks, quads or octets: unit 1, 4, 8) a quad and an octet, less 1.
  static __device__ __forceinline__ int InQuad(const DecodeItem& item) {
    return item.unit == 1 ? kSplitQuad - 1 : 0;
  }
  static __device__ __forceinline__ int InOctet(const DecodeItem& item) {
    return item.unit == 1            ? kSplitOctet - 1
           : item.unit == kSplitQuad ? kSplitOctet / kSplitQuad - 1
                                     : 0;
  }

  static constexpr int kStep = 4 * kLanes;  // columns from piece to piece

  const int lane_;
  int next_;  // units of the strand appended, counted from key 0
  const int end_;
  const int in_quad_, in_octet_;
  Row quad_, octet_, strand_;
};

}  // namespace attendant::kernels::sm90
