// Merging a strand's items through global memory, by the blocks that made them,
// one item each: every block stores its result, raises a flag to each of the
// others, fetches its share of the rows of all results as their flags come up,
// and folds it. No second kernel, and no block depends on others that have not
// started: whoever has waited too long leaves, and says so; the last to finish
// then folds all shares. (A share folded twice is stored twice, the same bits.)
//
// A result lies in a slot as registers hold it: 16 columns of 8 rows (a half of
// a warp's 16) are a piece of 512 bytes, which a warp stores at once and a warp
// reads at once. The share of block i is the halves i, i + parts, ...
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/sm90/decode_fold.cuh"
#include "kernels/sm90/decode_item.cuh"
#include "kernels/sm90/decode_load.cuh"
#include "kernels/sm90/decode_output.cuh"
#include "kernels/sm90/decode_table.h"
#include "kernels/sm90/ptx/atomic.cuh"
#include "kernels/sm90/ptx/bulk.cuh"
#include "kernels/sm90/ptx/mbarrier.cuh"

namespace attendant::kernels::sm90 {

// Of the consumers with the two warps that raise flags and fetch, of these two,
// and of the consumers with the one that fetches.
inline constexpr uint32_t kDecodeResultBarrier = 6;
inline constexpr uint32_t kDecodeRaisedBarrier = 7;
inline constexpr uint32_t kDecodeVerdictBarrier = 8;

// Clocks that a block waits for the others of its strand.
inline constexpr uint32_t kMergePatience = 40'000;

// What a strand's blocks tell each other, in global memory, all zero before and
// after the launch: a line of flags for each block, which the others raise
// there and it alone reads, since words that many change and many read make
// each other wait; and a word, a bit each block that has finished, then one
// each that has left.
struct ArrivalBoard {
  uint32_t word;
  uint32_t unused[15];
  uint32_t flags[kMostMerged][kMostMerged];  // [reader][block]
};
static_assert(sizeof(ArrivalBoard) == kArrivalWords * sizeof(uint32_t));

__device__ __forceinline__ ArrivalBoard& BoardOf(const DecodeParams& params,
                                                 const DecodeItem& item) {
  return reinterpret_cast<ArrivalBoard*>(
      params.arrivals)[item.sequence->first_strand + item.strand];
}

// Whether the blocks of `item`'s strand merge it here.
__device__ __forceinline__ bool MergesByArrival(const DecodeParams& params,
                                                const DecodeItem& item) {
  return item.parts > 1 && params.merge == DecodeMerge::kByArrival;
}

template <typename Shape, typename Element>
class StrandExchange {
 public:
  static constexpr int kD = Shape::kHeadDim;
  static constexpr int kResultThreads = Shape::kConsumers + 64;
  static constexpr int kVerdictThreads = Shape::kConsumers + 32;

  __device__ __forceinline__ StrandExchange(const DecodeParams& params,
                                            const DecodeItem& item,
                                            DecodeStorage<Shape>& storage)
      : params_(params),
        item_(item),
        storage_(storage),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32),
        halves_((item.num_rows + 7) / 8),
        share_halves_(
            SmallDivisor(item.parts).Divide(halves_ + item.parts - 1)) {}

  // ---- Consumers ----

  // This thread's rows of the block's result: of halves 2 warp and the next.
  __device__ __forceinline__ void Put(const PartialRows& rows,
                                      const float (&o)[kD / 2]) const {
    const PartialSlot<Shape> slot(params_, item_.slot);
    float4* const to = o_of(slot, 2 * warp_) + lane_;
    float2* const to_rows = slot.rows(16 * warp_ + lane_ / 4);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (2 * warp_ + r >= halves_) continue;
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        const int i = 8 * piece + 2 * r;
        to[32 * (r * kPieces + piece)] =
            make_float4(o[i], o[i + 1], o[i + 4], o[i + 5]);
      }
      if (lane_ % 4 == 0) to_rows[8 * r] = make_float2(rows.m[r], rows.l[r]);
    }
  }

  // After Put; all consumers, while two other warps run RaiseFlags and
  // FetchShare.
  __device__ __forceinline__ void Run() const {
    ptx::fence_proxy_async();  // what arrives takes the place of Q, K and V
    ptx::named_barrier_sync(kDecodeResultBarrier, kResultThreads);
    FoldShare(item_.part, 0, true);
    ptx::named_barrier_sync(kDecodeVerdictBarrier, kVerdictThreads);
    if (storage_.takes_all != 0) FoldAllShares();
  }

  // ---- A warp ----

  // The block's result has arrived.
  __device__ __forceinline__ void RaiseFlags(ArrivalBoard& board) const {
    ptx::named_barrier_sync(kDecodeResultBarrier, kResultThreads);
    if (lane_ < item_.parts) {
      ptx::store_release(&board.flags[lane_][item_.part], 1);
    }
    __syncwarp();
    ptx::named_barrier_arrive(kDecodeRaisedBarrier, 64);
  }

  // ---- Another ----

  // The block's share, each slot once it has arrived.
  __device__ __forceinline__ void FetchShare(ArrivalBoard& board) const {
    const uint32_t all = (1u << item_.parts) - 1;
    const uint32_t mine = 1u << item_.part;
    uint32_t* const flag =
        &board.flags[item_.part][min(lane_, kMostMerged - 1)];
    ptx::named_barrier_sync(kDecodeResultBarrier, kResultThreads);
    const uint32_t begin = clock();
    uint32_t arrived = 0;
    bool leaves = false;
    while (arrived != all && !leaves) {
      const bool is_up = ptx::load_acquire(flag) != 0;
      const uint32_t now = __ballot_sync(0xffffffffu, is_up) & all & ~arrived;
      arrived |= now;
      if (now >> lane_ & 1) {
        ptx::fence_proxy_async_global();
        Fetch(item_.part, lane_);
      }
      const bool is_late =
          static_cast<uint32_t>(clock()) - begin > kMergePatience;
      leaves = __shfl_sync(0xffffffffu, is_late, 0) && arrived != all;
    }
    if (lane_ == 0) {
      storage_.leaves = leaves;
      Expect(item_.part, __popc(arrived));
    }
    __syncwarp();
    if (!leaves && lane_ < kMostMerged) *flag = 0;  // all are up
    __syncwarp();
    // The block's own result has arrived, which depends on nobody else.
    ptx::named_barrier_sync(kDecodeRaisedBarrier, 64);
    uint32_t word = mine | (leaves ? mine << kMostMerged : 0);
    if (lane_ == 0) word |= ptx::atomic_or_acq_rel(&board.word, word);
    word = __shfl_sync(0xffffffffu, word, 0);
    const bool is_last = (word & all) == all;
    const bool some_left = word >> kMostMerged != 0;
    if (lane_ == 0) {
      storage_.takes_all = is_last && some_left;
      if (is_last) board.word = 0;
    }
    __syncwarp();
    ptx::named_barrier_sync(kDecodeVerdictBarrier, kVerdictThreads);
    // Who left has not put its flags back.
    if (!is_last || !some_left) return;
#pragma unroll 1
    for (int i = lane_; i < kMostMerged * kMostMerged; i += 32) {
      board.flags[i / kMostMerged][i % kMostMerged] = 0;
    }
  }

 private:
  static constexpr int kPieces = kD / 16;  // of a row
  static constexpr int kWarps = Shape::kConsumers / 32;
  static constexpr int kHalfBytes = 8 * kD * 4;
  using Row = FoldedRow<4>;

  // Halves of all slots that a share has, at most.
  static constexpr int MostStaged() {
    int most = 0;
    for (int parts = 2; parts <= kMostMerged; ++parts) {
      const int staged = (Shape::kTileQ / 8 + parts - 1) / parts * parts;
      most = staged > most ? staged : most;
    }
    return most;
  }
  // They take the place of Q, K and V.
  static_assert(MostStaged() * (kHalfBytes + 64) <=
                offsetof(DecodeStorage<Shape>, kept));

  static __device__ __forceinline__ float4* o_of(const PartialSlot<Shape>& slot,
                                                 int half) {
    return reinterpret_cast<float4*>(slot.base) + half * kPieces * 32;
  }

  __device__ __forceinline__ uint32_t barrier() const {
    return ptx::smem_address(&storage_.merge_full);
  }
  // Of share `share`; the last ones may have fewer.
  __device__ __forceinline__ int HalvesOf(int share) const {
    return SmallDivisor(item_.parts)
        .Divide(max(0, halves_ - share + item_.parts - 1));
  }
  // Half number `index` of a share, in shared memory: all slots' pieces, then
  // all slots' (m, l).
  __device__ __forceinline__ float4* staged_o(int slot, int index) const {
    return reinterpret_cast<float4*>(&storage_) +
           (index * item_.slots + slot) * (kHalfBytes / 16);
  }
  __device__ __forceinline__ float2* staged_rows(int slot, int index) const {
    return reinterpret_cast<float2*>(staged_o(0, share_halves_)) +
           (index * item_.slots + slot) * 8;
  }

  __device__ __forceinline__ void Expect(int share, int slots) const {
    ptx::mbarrier_arrive_expect_tx(barrier(),
                                   slots * HalvesOf(share) * (kHalfBytes + 64));
  }

  __device__ __forceinline__ void Fetch(int share, int number) const {
    const PartialSlot<Shape> slot(params_, item_.first_slot + number);
#pragma unroll 1
    for (int half = share, index = 0; half < halves_;
         half += item_.parts, ++index) {
      ptx::bulk_load(ptx::smem_address(staged_o(number, index)),
                     o_of(slot, half), kHalfBytes, barrier());
      ptx::bulk_load(ptx::smem_address(staged_rows(number, index)),
                     slot.rows(8 * half), 64, barrier());
    }
  }

  // All slots have arrived.
  __device__ __forceinline__ void FoldAllShares() const {
    uint32_t phase = 1;
#pragma unroll 1
    for (int share = 0; share < item_.parts; ++share, phase ^= 1) {
      ptx::fence_proxy_async();
      ptx::named_barrier_sync(kDecodeConsumersBarrier, Shape::kConsumers);
      if (threadIdx.x == 0) {
        storage_.leaves = 0;
        ptx::fence_proxy_async_global();
#pragma unroll 1
        for (int slot = 0; slot < item_.slots; ++slot) Fetch(share, slot);
        Expect(share, item_.slots);
      }
      FoldShare(share, phase, false);
    }
  }

  // Unless the block leaves: a piece a warp at a time. `rehearses`: runs once
  // on nothing before the share is there, so that the instructions are.
  __device__ __forceinline__ void FoldShare(int share, uint32_t phase,
                                            bool rehearses) const {
    const int pieces = HalvesOf(share) * kPieces;
#pragma unroll 1
    for (int n = warp_; n < pieces || rehearses;) {
      const int index = n / kPieces;
      const int piece = n % kPieces;
      const int row = 8 * (share + index * item_.parts) + lane_ / 4;
      const RowTarget target = TargetOf(item_, min(row, item_.num_rows - 1));
      int count = 0;
      if (!rehearses) {
        ptx::mbarrier_wait(barrier(), phase);
        if (storage_.leaves != 0) return;
        count = item_.slots;
      }
      const float4* const o = staged_o(0, index) + piece * 32 + lane_;
      const float2* const rows = staged_rows(0, index) + lane_ / 4;
      const Row strand =
          __builtin_expect(
              item_.unit == 1 && item_.first_unit % kSplitOctet == 0, 1)
              ? FoldChunks(o, rows, count)
              : FoldUnits(o, rows, count);
      Store(target, piece, strand, row < item_.num_rows && !rehearses);
      n += rehearses ? 0 : kWarps;
      rehearses = false;
    }
  }

  // This lane's columns of the strand's row. Slots are chunks, the first one an
  // octet's. A lane computes what the merges of a quad multiply by, and hands
  // it on; slots from `count` on have seen nothing, which changes no bit.
  __device__ __forceinline__ Row FoldChunks(const float4* o, const float2* rows,
                                            int count) const {
    const int quad_lane = lane_ % 4;
    float m = -INFINITY;
    float l = 0.0f;
    MergeFactors factors[kSplitQuad];
#pragma unroll
    for (int i = 0; i < kSplitQuad; ++i) {
      const int j = kSplitQuad * quad_lane + i;
      float2 next = make_float2(-INFINITY, 0.0f);
      if (j < count) next = rows[8 * j];
      factors[i] = Merge(m, l, next.x, next.y);
    }
    Row strand;
#pragma unroll
    for (int octet = 0; octet < kMostMerged / kSplitOctet; ++octet) {
      float4 slots[kSplitOctet];
#pragma unroll
      for (int k = 0; k < kSplitOctet; ++k) {
        const int j = kSplitOctet * octet + k;
        slots[k] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (j < count) slots[k] = o[kHalfBytes / 16 * j];
      }
      Row of_octet;
#pragma unroll
      for (int quad = 0; quad < kSplitOctet / kSplitQuad; ++quad) {
        const int source =
            lane_ - quad_lane + kSplitOctet / kSplitQuad * octet + quad;
        Row of_quad;
#pragma unroll
        for (int i = 0; i < kSplitQuad; ++i) {
          const MergeFactors here = {
              __shfl_sync(0xffffffffu, factors[i].a, source),
              __shfl_sync(0xffffffffu, factors[i].b, source)};
          const float4& slot = slots[kSplitQuad * quad + i];
          of_quad.o[0] = MergeValue(of_quad.o[0], slot.x, here);
          of_quad.o[1] = MergeValue(of_quad.o[1], slot.y, here);
          of_quad.o[2] = MergeValue(of_quad.o[2], slot.z, here);
          of_quad.o[3] = MergeValue(of_quad.o[3], slot.w, here);
        }
        of_quad.m = __shfl_sync(0xffffffffu, m, source);
        of_quad.l = __shfl_sync(0xffffffffu, l, source);
        if (quad == 0) {
          of_octet = of_quad;
        } else {
          of_octet.Append(of_quad);
        }
      }
      if (octet == 0) {
        strand = of_octet;
      } else {
        strand.Append(of_octet);
      }
    }
    return strand;
  }

  // Any slots, one after the other.
  __device__ __forceinline__ Row FoldUnits(const float4* o, const float2* rows,
                                           int count) const {
    StrandFold<4> fold(item_, count);
#pragma unroll 1
    for (int j = 0; j < count; ++j) {
      const float4 four = o[j * (kHalfBytes / 16)];
      const float2 ml = rows[8 * j];
      Row row;
      row.m = ml.x;
      row.l = ml.y;
      row.o[0] = four.x;
      row.o[1] = four.y;
      row.o[2] = four.z;
      row.o[3] = four.w;
      fold.Append(row);
    }
    return fold.strand();
  }

  // To `target`, the row's, if `is_real`.
  __device__ __forceinline__ void Store(const RowTarget& target, int piece,
                                        const Row& strand, bool is_real) const {
    const int quad_lane = lane_ % 4;
    const RowEnd end = FinishRow(strand.m, strand.l, target.sink_log2);
    if (target.lse != nullptr && is_real && piece == 0 && quad_lane == 0) {
      *target.lse = end.lse;
    }
    // Four neighbouring columns, of two lanes' pairs.
    const bool is_odd = quad_lane % 2 != 0;
    const float first =
        __shfl_xor_sync(0xffffffffu, is_odd ? strand.o[0] : strand.o[2], 1);
    const float second =
        __shfl_xor_sync(0xffffffffu, is_odd ? strand.o[1] : strand.o[3], 1);
    const float o[4] = {
        is_odd ? first : strand.o[0], is_odd ? second : strand.o[1],
        is_odd ? strand.o[2] : first, is_odd ? strand.o[3] : second};
    const int column = 16 * piece + 8 * (quad_lane % 2) + 4 * (quad_lane / 2);
    StorePieces<Element, 1>(params_, *item_.problem, target.out, column, 0, o,
                            end.inverse, is_real);
  }

  const DecodeParams& params_;
  const DecodeItem& item_;
  DecodeStorage<Shape>& storage_;
  const int warp_, lane_;
  const int halves_;        // that hold rows
  const int share_halves_;  // of the first share, which no other exceeds
};

}  // namespace attendant::kernels::sm90
