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

// Some columns of a strand's row, its slots (chunks, quads or octets: unit 1,
// 4, 8) appended in order.
template <int kColumns>
class StrandFold {
 public:
  using Row = FoldedRow<kColumns>;

  // `slots`: of the strand.
  __device__ __forceinline__ StrandFold(const DecodeItem& item, int slots)
      : next_(item.first_unit),
        end_(next_ + slots),
        in_quad_(item.unit == 1 ? kSplitQuad - 1 : 0),
        in_octet_(item.unit == 1            ? kSplitOctet - 1
                  : item.unit == kSplitQuad ? kSplitOctet / kSplitQuad - 1
                                            : 0) {}

  __device__ __forceinline__ void Append(const Row& slot) {
    quad_.Append(slot);
    const bool is_last = ++next_ == end_;
    if ((next_ & in_quad_) != 0 && !is_last) return;
    octet_.Append(quad_);
    quad_ = Row();
    if ((next_ & in_octet_) != 0 && !is_last) return;
    strand_.Append(octet_);
    octet_ = Row();
  }

  // Once all are appended, or what became the strand instead.
  __device__ __forceinline__ const Row& strand() const { return strand_; }
  __device__ __forceinline__ void BecomeStrand(const Row& strand) {
    strand_ = strand;
  }

 private:
  int next_;  // units of the strand appended, counted from key 0
  const int end_;
  const int in_quad_, in_octet_;  // slots in one, less 1
  Row quad_, octet_, strand_;
};

// O of kPieces times four neighbouring columns of a row, `step` apart from
// `column` on, to `out` (see RowTarget) if `is_real`. `factor`: FinishRow's.
template <typename Element, int kPieces>
__device__ __forceinline__ void StorePieces(const DecodeParams& params,
                                            const DecodeProblem& problem,
                                            int64_t out, int column, int step,
                                            const float (&o)[4 * kPieces],
                                            float factor, bool is_real) {
  float values[4 * kPieces];
#pragma unroll
  for (int e = 0; e < 4 * kPieces; ++e) {
    values[e] = __fmul_rn(o[e], factor) + 0.0f;
  }
  // What is rare stands aside: a jump over it costs a fetch as well.
  if (__builtin_expect(problem.out_is_vectorized && !problem.out_is_fp32, 1)) {
    uint32_t not_finite = 0;
    Element* const target = static_cast<Element*>(problem.out) + out + column;
#pragma unroll
    for (int v = 0; v < kPieces; ++v) {
      uint32_t words[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        words[e] = ptx::pack<Element>(values[4 * v + 2 * e],
                                      values[4 * v + 2 * e + 1]);
        if (column + v * step < problem.head_dim_v) {
          CollectNonFinite<Element>(words[e], not_finite);
        }
      }
      if (column + v * step < problem.head_dim_v && is_real) {
        *reinterpret_cast<uint2*>(target + v * step) =
            make_uint2(words[0], words[1]);
      }
    }
    if (not_finite != 0 && is_real) *params.repair_flag = 1;
    return;
  }
  if (!is_real) return;
#pragma unroll
  for (int v = 0; v < kPieces; ++v) {
    float piece[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) piece[e] = values[4 * v + e];
    StoreColumns<Element>(params, problem, out, column + v * step, piece);
  }
}

// Some columns of a strand's row, slots appended in order from shared memory.
template <int kD>
class RowFold {
 public:
  static constexpr int kColumns = 8;            // of a thread, in two pieces
  static constexpr int kLanes = kD / kColumns;  // that take a row

  // `slots`: of the strand; `lane`: of kLanes.
  __device__ __forceinline__ RowFold(const DecodeItem& item, int slots,
                                     int lane)
      : lane_(lane), fold_(item, slots) {}

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
      fold_.Append(slot);
    }
  }

  // Whether AppendInPairs serves: the strand's slots are one octet of chunks.
  static __device__ __forceinline__ bool CanPair(const DecodeItem& item) {
    return item.unit == 1 && item.first_unit % kSplitOctet == 0 &&
           item.slots == kSplitOctet;
  }

  // As Append, all of the strand's slots, by 2 * kLanes threads that lie side
  // by side, of which the first half gets the result. Few rows leave threads
  // without work, and each step of a fold waits for the one before: here each
  // half folds a quad, and within a quad a thread takes a slot to compute what
  // its merge multiplies by, and hands it on. Called by whole warps.
  __device__ __forceinline__ void AppendInPairs(const StagedShare<kD>& share,
                                                int row, int index, int own,
                                                const float* own_o,
                                                const float2* own_ml) {
    const bool is_second = threadIdx.x % (2 * kLanes) >= kLanes;
    const int first = is_second ? kSplitQuad : 0;
    const int in_quad = threadIdx.x % kSplitQuad;
    const int leader = threadIdx.x % 32 - in_quad;
    const int mine = first + in_quad;
    const float2 ml = *(mine == own ? own_ml + row : share.ml_of(mine) + index);
    // Maxima of the quad up to this slot, and up to the one before.
    float reached = ml.x;
#pragma unroll
    for (int step = 1; step < kSplitQuad; step *= 2) {
      reached = fmaxf(reached,
                      __shfl_up_sync(0xffffffffu, reached, step, kSplitQuad));
    }
    float before = __shfl_up_sync(0xffffffffu, reached, 1, kSplitQuad);
    if (in_quad == 0) before = -INFINITY;
    float no_sum = 0.0f;
    const MergeFactors factors = Merge(before, no_sum, ml.x, 0.0f);
    const int piece = 4 * TurnedPiece(row, lane_);
    Row quad;
#pragma unroll
    for (int k = 0; k < kSplitQuad; ++k) {
      const int j = first + k;
      const MergeFactors here = {
          __shfl_sync(0xffffffffu, factors.a, leader + k),
          __shfl_sync(0xffffffffu, factors.b, leader + k)};
      const float l = __shfl_sync(0xffffffffu, ml.y, leader + k);
      const float* const from =
          (j == own ? own_o + row * kD : share.o_of(j) + index * kD) + piece;
      quad.l = k == 0 ? l * here.b : MergeValue(quad.l, l, here);
#pragma unroll
      for (int v = 0; v < kColumns / 4; ++v) {
        const float4 four = *reinterpret_cast<const float4*>(from + v * kStep);
        const float values[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float& o = quad.o[4 * v + e];
          o = k == 0 ? values[e] * here.b : MergeValue(o, values[e], here);
        }
      }
    }
    quad.m = __shfl_sync(0xffffffffu, reached, leader + kSplitQuad - 1);
    // The other half's.
    Row next;
    next.m = __shfl_down_sync(0xffffffffu, quad.m, kLanes);
    next.l = __shfl_down_sync(0xffffffffu, quad.l, kLanes);
#pragma unroll
    for (int e = 0; e < kColumns; ++e) {
      next.o[e] = __shfl_down_sync(0xffffffffu, quad.o[e], kLanes);
    }
    quad.Append(next);
    fold_.BecomeStrand(quad);
  }

  // To `target`, the row's, if `is_real`.
  template <typename Element>
  __device__ __forceinline__ void Store(const DecodeParams& params,
                                        const DecodeItem& item,
                                        const RowTarget& target,
                                        bool is_real) const {
    const Row& strand = fold_.strand();
    const RowEnd end = FinishRow(strand.m, strand.l, target.sink_log2);
    if (target.lse != nullptr && lane_ == 0 && is_real) *target.lse = end.lse;
    StorePieces<Element, kColumns / 4>(params, *item.problem, target.out,
                                       4 * lane_, kStep, strand.o, end.inverse,
                                       is_real);
  }

 private:
  using Row = FoldedRow<kColumns>;
  static constexpr int kStep = 4 * kLanes;  // columns from piece to piece

  const int lane_;
  StrandFold<kColumns> fold_;
};

}  // namespace attendant::kernels::sm90
