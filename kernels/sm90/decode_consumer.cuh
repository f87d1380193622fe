// A warpgroup of the decode kernel for more rows. See decode_split_kv.cuh.
#pragma once

#include <cstdint>

#include "kernels/sm90/decode_cluster.cuh"
#include "kernels/sm90/decode_exchange.cuh"
#include "kernels/sm90/decode_item.cuh"
#include "kernels/sm90/decode_load.cuh"
#include "kernels/sm90/decode_merge.cuh"
#include "kernels/sm90/decode_output.cuh"
#include "kernels/sm90/decode_table.h"
#include "kernels/sm90/ptx/mbarrier.cuh"
#include "kernels/sm90/ptx/register.cuh"
#include "kernels/sm90/ptx/wgmma.cuh"
#include "kernels/sm90/softmax.cuh"

namespace attendant::kernels::sm90 {

// A thread's two packed rows: 16 w + l / 4 and that + 8 of its warpgroup's 64.
// kModifies: some problem has a softcap, ALiBi or a scale that is not positive.
template <typename Shape, typename Element, bool kGrouped, bool kModifies>
class DecodeConsumer {
 public:
  static constexpr int kN = Shape::kTileKv;
  static constexpr int kD = Shape::kHeadDim;
  static constexpr int kStages = Shape::kStages;
  static constexpr bool kMayMerge = MayMerge<Shape, kModifies>();
  static constexpr bool kTakesTurns = Shape::kWarpgroups == 2 && kMayMerge;

  // `warpgroup`: uniform.
  __device__ __forceinline__ DecodeConsumer(const DecodeParams& params,
                                            DecodeStorage<Shape>& storage,
                                            int warpgroup)
      : params_(params),
        storage_(storage),
        warpgroup_(warpgroup),
        lane_(threadIdx.x % 32),
        row_(64 * warpgroup + threadIdx.x % 128 / 32 * 16 + lane_ / 4),
        q_descriptor_(ptx::wgmma_descriptor(
            UniformAddress(storage.q) + warpgroup * (64 * 128), 0)),
        k_descriptor_(ptx::wgmma_descriptor(UniformAddress(storage.k), 0)),
        v_descriptor_(
            ptx::wgmma_descriptor(UniformAddress(storage.v), kN * 128)) {}

  // Before the block has met: the Q of `item`, its first, is on its way.
  __device__ __forceinline__ void Begin(const DecodeItem& item) {
    q_by_map_ = ptx::uniform(item.problem->q_has_map);
    if (!q_by_map_) LoadQ<Shape>(item, 64 * warpgroup_, storage_);
  }

  __device__ __forceinline__ void Run() {
    bool has_item = AwaitItem(storage_, items_);
    bool merges = false;
    while (has_item) {
      const DecodeItem item = Item(items_);
      SetBounds(item);
      if (q_by_map_) {
        ptx::mbarrier_wait(ptx::smem_address(&storage_.q_full), 0);
        q_by_map_ = false;
      } else {
        AwaitQ();
        SyncWarpgroup();
      }
      float o[kD / 2];
      PartialRows rows;
      has_item = RunItem(item, rows, o);
      const DecodeItem ended = Item(items_);
      if (ptx::uniform(ended.parts) == 1) {
        StoreFinal<kD, Element>(params_, ended, rows, o, row_, lane_ % 4);
      } else {
        StorePartial(ended, rows, o);
        merges = kMayMerge && params_.merge != DecodeMerge::kCombineKernel;
        if (merges) break;
      }
      ReleaseItem(storage_, items_);
    }
    if constexpr (kMayMerge) {
      if (merges) Merge(Item(items_));
    }
  }

 private:
  __device__ __forceinline__ void SetBounds(const DecodeItem& item) {
    const DecodeProblem& problem = *item.problem;
    const DecodeSequence& sequence = *item.sequence;
    const SmallDivisor divisor(problem.group_size);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int packed =
          item.row0 + min(row_ + 8 * r, max(0, item.num_rows - 1));
      const int position = divisor.Divide(packed);
      low_[r] = position + sequence.low_offset;
      high_[r] = min(sequence.len_kv, position + sequence.high_offset);
      diagonal_[r] = static_cast<float>(position + sequence.diagonal_shift);
      slope_log2_[r] = kModifies ? SlopeLog2(item, packed) : 0.0f;
    }
    const int last = item.row0 + item.num_rows - 1;
    clear_begin_ = ptx::uniform(divisor.Divide(last) + sequence.low_offset);
    clear_end_ = ptx::uniform(
        min(sequence.len_kv, divisor.Divide(item.row0) + sequence.high_offset));
    scale_log2_ = problem.scale_log2;
    softcap_ = problem.softcap;
    modifies_ = kModifies && ptx::uniform(problem.modifies_scores);
    factor_ = modifies_ ? 1.0f : scale_log2_;
    warp_has_rows_ = row_ - lane_ / 4 < item.num_rows;
  }

  __device__ __forceinline__ const DecodeItemNumbers& Numbers() const {
    return storage_.items[items_.stage];
  }

  // Read anew each time: the products leave no registers to keep it in.
  __device__ __forceinline__ DecodeItem Item(const DecodeRing<2>& place) const {
    return ItemOf<kGrouped>(params_, storage_.items[place.stage]);
  }

  // Whether there is a next item; its Q is on its way.
  __device__ __forceinline__ bool AwaitNext() {
    SyncWarpgroup();  // nobody's products read this item's Q
    DecodeRing<2> next = items_;
    next.Advance();
    const bool has_next = AwaitItem(storage_, next);
    if (has_next) LoadQ<Shape>(Item(next), 64 * warpgroup_, storage_);
    return has_next;
  }

  // Leaves the item's result in `rows` and `o`. Returns AwaitNext.
  __device__ __forceinline__ bool RunItem(const DecodeItem& item,
                                          PartialRows& rows,
                                          float (&o)[kD / 2]) {
    if (!ptx::uniform(item.key_begin >= item.key_end)) {
      return RunKeys(item, rows, o);
    }
    // Nothing to see: O = 0, LSE = -inf.
#pragma unroll
    for (int i = 0; i < kD / 2; ++i) o[i] = 0.0f;
    return AwaitNext();
  }

  // Leaves the item's chunks folded in `rows` and `o`. Returns AwaitNext.
  __device__ __forceinline__ bool RunKeys(const DecodeItem& item,
                                          PartialRows& rows,
                                          float (&o)[kD / 2]) {
    float s[kN / 2];
    float rescale[2];
    uint32_t p[kN / 4];
    const int key_end = ptx::uniform(item.key_end);
    int key = ptx::uniform(item.key_begin);
    int chunk = ptx::uniform(item.chunk_begin);
    int next_chunk_key = ptx::uniform(key + item.chunk_keys);
    KeptLevels<Shape> kept(params_, storage_);
    rows = PartialRows();
    ptx::mbarrier_wait(At(storage_.k_full, k_), k_.phase);
    // The block's first: one warpgroup half a step ahead, so that from then on
    // its exponentials run beside the other's products.
    const bool waits_turn = kTakesTurns && is_first_ && warpgroup_ == 1;
    const bool ends_turn = kTakesTurns && is_first_ && warpgroup_ == 0;
    is_first_ = false;
    if (waits_turn) ptx::named_barrier_sync(kDecodeTurnBarrier, 256);
    ptx::wgmma_fence();
    IssueQk(s);
    ptx::wgmma_commit_group();
    if (ends_turn) ptx::named_barrier_arrive(kDecodeTurnBarrier, 256);
    ptx::wgmma_wait_group<0>();
    Release(storage_.k_empty, k_);
    k_.Advance();
    SoftmaxStep(s, key, rows, rescale);
    rescale[0] = rescale[1] = 1.0f;  // nothing in O yet
    RoundP(s, p);
    int accumulate = 0;
    while ((key += kN) < key_end) {
      ptx::mbarrier_wait(At(storage_.k_full, k_), k_.phase);
      ptx::wgmma_fence();
      IssueQk(s);
      ptx::wgmma_commit_group();
      RescaleO<kD>(rescale, o);
      ptx::mbarrier_wait(At(storage_.v_full, v_), v_.phase);
      ptx::wgmma_fence();
      IssuePv(p, o, accumulate);
      ptx::wgmma_commit_group();
      ptx::wgmma_wait_group<1>();
      Release(storage_.k_empty, k_);
      k_.Advance();
      // A chunk starts from nothing; O still gets what the last one lacks.
      PartialRows ended = rows;
      const bool begins = key == next_chunk_key;
      if (begins) rows = PartialRows();
      SoftmaxStep(s, key, rows, rescale);
      // Keeps the wait for PV behind the exponentials, see PREFILL.md.
      ptx::mbarrier_arrive_if_negative(ptx::smem_address(storage_.k_empty),
                                       rows.l[0] + rows.l[1]);
      ptx::wgmma_wait_group<0>();
      Release(storage_.v_empty, v_);
      v_.Advance();
      RoundP(s, p);
      accumulate = 1;
      if (begins) {
        next_chunk_key += ptx::uniform(Numbers().chunk_keys);
        accumulate = 0;
        rescale[0] = rescale[1] = 1.0f;
        ended.ReduceSums();
        kept.Add(++chunk, ended, o);
      }
    }
    RescaleO<kD>(rescale, o);
    ptx::mbarrier_wait(At(storage_.v_full, v_), v_.phase);
    ScrubV(Numbers().len_kv - (key - kN));
    ptx::wgmma_fence();
    IssuePv(p, o, accumulate);
    ptx::wgmma_commit_group();
    const bool has_next = AwaitNext();
    rows.ReduceSums();
    ptx::wgmma_wait_group<0>();
    Release(storage_.v_empty, v_);
    v_.Advance();
    kept.Finish(rows, o);
    return has_next;
  }

  // S = Q K^T of the block in k_'s stage.
  __device__ __forceinline__ void IssueQk(float (&s)[kN / 2]) const {
    const uint64_t k =
        k_descriptor_ + k_.stage * (DecodeStorage<Shape>::kTileBytes / 16);
    ptx::WgmmaSs<kN, Element>::template issue<false>(s, q_descriptor_, k);
#pragma unroll
    for (int step = 1; step < kD / 16; ++step) {
      const int box = step / 4;
      const int within = step % 4 * (32 / 16);
      ptx::WgmmaSs<kN, Element>::template issue<true>(
          s, q_descriptor_ + box * (Shape::kTileQ * 128 / 16) + within,
          k + box * (kN * 128 / 16) + within);
    }
  }

  // O = P V (+ O if `accumulate`) of the block in v_'s stage.
  __device__ __forceinline__ void IssuePv(const uint32_t (&p)[kN / 4],
                                          float (&o)[kD / 2],
                                          int accumulate) const {
    const uint64_t v =
        v_descriptor_ + v_.stage * (DecodeStorage<Shape>::kTileBytes / 16);
#pragma unroll
    for (int step = 0; step < kN / 16; ++step) {
      ptx::WgmmaRs<kD, Element>::issue(o, p + 4 * step,
                                       v + step * (16 * 128 / 16),
                                       step == 0 ? accumulate : 1);
    }
  }

  // Scores s (in) to p (out) of the block whose first key is `key`: x = s *
  // factor_ in log2 units, -inf where the row may not look.
  __device__ __forceinline__ void SoftmaxStep(float (&s)[kN / 2], int key,
                                              PartialRows& rows,
                                              float (&rescale)[2]) const {
    const int column = key + 2 * (lane_ % 4);
    if (kModifies && modifies_) {
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) {
        const int r = i / 2 % 2;
        const ScoreMod mod = {scale_log2_, softcap_, slope_log2_[r]};
        const int j = column + 8 * (i / 4) + i % 2;
        s[i] = mod(s[i], fabsf(diagonal_[r] - static_cast<float>(j)));
      }
    }
    if (key + kN > clear_end_ || key < clear_begin_) {
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) {
        const int r = i / 2 % 2;
        const int j = column + 8 * (i / 4) + i % 2;
        if (j < low_[r] || j >= high_[r]) s[i] = -INFINITY;
      }
    }
    float maximum[2] = {s[0], s[2]};
#pragma unroll
    for (int i = 0; i < kN / 2; ++i) {
      maximum[i / 2 % 2] = fmaxf(maximum[i / 2 % 2], s[i]);
    }
    float base[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      maximum[r] =
          fmaxf(maximum[r], __shfl_xor_sync(0xffffffffu, maximum[r], 1));
      maximum[r] =
          fmaxf(maximum[r], __shfl_xor_sync(0xffffffffu, maximum[r], 2));
      const float risen = fmaxf(rows.m[r], maximum[r] * factor_);
      base[r] = risen == -INFINITY ? 0.0f : risen;
      rescale[r] = ptx::ex2_approx(rows.m[r] - base[r]);
      rows.l[r] = __fmul_rn(rows.l[r], rescale[r]);
      rows.m[r] = risen;
    }
#pragma unroll
    for (int i = 0; i < kN / 2; ++i) {
      s[i] = ptx::ex2_approx(fmaf(s[i], factor_, -base[i / 2 % 2]));
      rows.l[i / 2 % 2] = __fadd_rn(rows.l[i / 2 % 2], s[i]);
    }
  }

  __device__ __forceinline__ static void RoundP(const float (&s)[kN / 2],
                                                uint32_t (&p)[kN / 4]) {
#pragma unroll
    for (int i = 0; i < kN / 4; ++i) {
      p[i] = ptx::pack<Element>(s[2 * i], s[2 * i + 1]);
    }
  }

  // Zeros V's rows from `first` on in its stage: P is 0 there, 0 * NaN is not.
  __device__ __forceinline__ void ScrubV(int first) const {
    if (first >= kN) return;
    uint8_t* v = storage_.v[v_.stage];
    constexpr int kPieces = kD / 8;
    for (int i = threadIdx.x % 128; i < (kN - first) * kPieces; i += 128) {
      const int row = first + i / kPieces;
      const int piece = i % kPieces;
      *reinterpret_cast<uint4*>(v + (piece / 8 * kN + row) * 128 +
                                piece % 8 * 16) = make_uint4(0, 0, 0, 0);
    }
    ptx::fence_proxy_async();
    SyncWarpgroup();
  }

  __device__ __forceinline__ void SyncWarpgroup() const {
    ptx::named_barrier_sync(kDecodeWarpgroupBarrier + warpgroup_, 128);
  }

  __device__ __forceinline__ static uint32_t At(
      const uint64_t* barriers, const DecodeRing<kStages>& place) {
    return ptx::smem_address(barriers) + place.stage * 8;
  }

  __device__ __forceinline__ void Release(
      const uint64_t* empty, const DecodeRing<kStages>& place) const {
    if (lane_ == 0) ptx::mbarrier_arrive(At(empty, place));
  }

  __device__ __forceinline__ void StorePartial(const DecodeItem& item,
                                               const PartialRows& rows,
                                               const float (&o)[kD / 2]) {
    const PartialSlot<Shape> slot(params_, item.slot);
    if constexpr (kMayMerge) {
      if (params_.merge == DecodeMerge::kByArrival) {
        StrandExchange<Shape, Element>(params_, item, storage_).Put(rows, o);
        return;
      }
    }
    if constexpr (!Shape::kKeepsInShared) {
      if (warp_has_rows_) {
        PutRows<kD>(slot.o(0), slot.rows(0), rows, o, row_, lane_ % 4);
      }
    } else {
      SyncWarpgroup();  // all have read what was kept here
      float* const kept = reinterpret_cast<float*>(storage_.kept);
      if (warp_has_rows_) {
        PutRows<kD>(kept, storage_.rows, rows, o, row_, lane_ % 4);
      }
      if constexpr (kMayMerge) {
        if (params_.merge != DecodeMerge::kCombineKernel) return;
      }
      ptx::fence_proxy_async();
      SyncWarpgroup();
      const int first = 64 * warpgroup_;
      if (threadIdx.x % 128 == 0 && first < item.num_rows) {
        slot.Store(kept, storage_.rows, first, min(64, item.num_rows - first));
        ptx::bulk_wait_read();
      }
      SyncWarpgroup();
    }
  }

  // The block's only item.
  __device__ __forceinline__ void Merge(const DecodeItem& item) const {
    if (params_.merge == DecodeMerge::kInCluster) {
      ClusterMerge<Shape, Element>(params_, item, storage_).Run();
    } else {
      StrandExchange<Shape, Element>(params_, item, storage_).Run();
    }
  }

  const DecodeParams& params_;
  DecodeStorage<Shape>& storage_;
  const int warpgroup_;
  const int lane_;
  const int row_;
  const uint64_t q_descriptor_, k_descriptor_, v_descriptor_;
  int low_[2], high_[2];
  float diagonal_[2], slope_log2_[2];
  int clear_begin_, clear_end_;  // keys in between need no mask
  float scale_log2_, softcap_;
  float factor_;  // from scores to log2 units; scores modified before: 1
  bool modifies_;
  bool is_first_ = true;  // nothing computed yet
  bool q_by_map_;         // the next item's Q, the first
  bool warp_has_rows_;  // else its products are of Q = 0 and nobody reads them
  DecodeRing<kStages> k_, v_;
  DecodeRing<2> items_;
};

}  // namespace attendant::kernels::sm90
