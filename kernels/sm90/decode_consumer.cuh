// A warpgroup of the decode kernel for more rows. See decode_split_kv.cuh.
#pragma once

#include <cstdint>

#include "kernels/sm90/decode_cluster.cuh"
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

inline constexpr uint32_t kDecodeWarpgroupBarrier = 2;  // and the next
inline constexpr uint32_t kDecodeConsumersBarrier = 4;

// A thread's two packed rows: 16 w + l / 4 and that + 8 of its warpgroup's 64.
// kModifies: some problem has a softcap, ALiBi or a scale that is not positive.
template <typename Shape, typename Element, bool kGrouped, bool kModifies>
class DecodeConsumer {
 public:
  static constexpr int kN = Shape::kTileKv;
  static constexpr int kD = Shape::kHeadDim;
  static constexpr int kStages = Shape::kStages;
  static constexpr bool kMayCluster = MayCluster<Shape, kModifies>();

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
            ptx::smem_address(storage.q) + warpgroup * (64 * 128), 0)),
        k_descriptor_(ptx::wgmma_descriptor(ptx::smem_address(storage.k), 0)),
        v_descriptor_(
            ptx::wgmma_descriptor(ptx::smem_address(storage.v), kN * 128)) {}

  __device__ __forceinline__ void Run() {
    int index = ptx::uniform(TakeItem(storage_, items_));
    LoadQOf(index);
    while (index >= 0) {
      const DecodeItem item =
          FindItem<kGrouped, true>(params_, index, Shape::kTileQ);
      SetBounds(item);
      AwaitQ();
      SyncWarpgroup();
      index = RunItem(item);
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
    len_kv_ = ptx::uniform(sequence.len_kv);
    warp_has_rows_ = row_ - lane_ / 4 < item.num_rows;
  }

  // Of this warpgroup's rows, if there is an item of that number.
  __device__ __forceinline__ void LoadQOf(int index) const {
    if (index < 0) return;
    LoadQ<Shape>(FindItem<kGrouped, true>(params_, index, Shape::kTileQ),
                 64 * warpgroup_, storage_);
  }

  // The next item's number; its Q is on its way.
  __device__ __forceinline__ int TakeNext() {
    SyncWarpgroup();  // nobody's products read this item's Q
    const int next = ptx::uniform(TakeItem(storage_, items_));
    LoadQOf(next);
    return next;
  }

  // Returns TakeNext.
  __device__ __forceinline__ int RunItem(const DecodeItem& item) {
    float o[kD / 2];
    PartialRows rows;
    int next;
    if (ptx::uniform(item.key_begin >= item.key_end)) {
      // Nothing to see: O = 0, LSE = -inf.
      next = TakeNext();
#pragma unroll
      for (int i = 0; i < kD / 2; ++i) o[i] = 0.0f;
    } else {
      next = RunKeys(item, rows, o);
    }
    if (kMayCluster && params_.cluster_size > 1) {
      if constexpr (kMayCluster) MergeInCluster(rows, o);
    } else if (item.parts > 1) {
      if (warp_has_rows_) StorePartial(item, rows, o);
    } else {
      StoreFinal<kD, Element>(params_, item, rows, o, row_, lane_ % 4);
    }
    return next;
  }

  // A block's only item: looked up anew, since what the merge needs of it would
  // not fit in registers beside the products.
  __device__ __forceinline__ void MergeInCluster(const PartialRows& rows,
                                                 const float (&o)[kD / 2]) {
    const DecodeItem item = FindItem<kGrouped, true>(
        params_, ptx::block_index_again(), Shape::kTileQ);
    // Other warps' products may still read V.
    ptx::named_barrier_sync(kDecodeConsumersBarrier, Shape::kConsumers);
    ClusterMerge<Shape, Element>(params_, item, storage_).Run(rows, o, row_);
  }

  // Leaves the item's chunks folded in `rows` and `o`. Returns TakeNext.
  __device__ __forceinline__ int RunKeys(const DecodeItem& item,
                                         PartialRows& rows,
                                         float (&o)[kD / 2]) {
    float s[kN / 2];
    float rescale[2];
    uint32_t p[kN / 4];
    const int key_end = ptx::uniform(item.key_end);
    const int chunk_keys = ptx::uniform(item.sequence->chunk_keys);
    int key = ptx::uniform(item.key_begin);
    int chunk = ptx::uniform(item.chunk_begin);
    int next_chunk_key = key + chunk_keys;
    KeptLevels<Shape> kept(params_, storage_);
    rows = PartialRows();
    ptx::mbarrier_wait(At(storage_.k_full, k_), k_.phase);
    ptx::wgmma_fence();
    IssueQk(s);
    ptx::wgmma_commit_group();
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
      RescaleO(rescale, o);
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
        next_chunk_key += chunk_keys;
        accumulate = 0;
        rescale[0] = rescale[1] = 1.0f;
        ReduceSums(ended);
        kept.Add(++chunk, ended, o);
      }
    }
    RescaleO(rescale, o);
    ptx::mbarrier_wait(At(storage_.v_full, v_), v_.phase);
    ScrubV(len_kv_ - (key - kN));
    ptx::wgmma_fence();
    IssuePv(p, o, accumulate);
    ptx::wgmma_commit_group();
    const int next = TakeNext();
    ReduceSums(rows);
    ptx::wgmma_wait_group<0>();
    Release(storage_.v_empty, v_);
    v_.Advance();
    kept.Finish(rows, o);
    return next;
  }

  __device__ __forceinline__ static void ReduceSums(PartialRows& rows) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      rows.l[r] += __shfl_xor_sync(0xffffffffu, rows.l[r], 1);
      rows.l[r] += __shfl_xor_sync(0xffffffffu, rows.l[r], 2);
    }
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

  __device__ __forceinline__ static void RescaleO(const float (&rescale)[2],
                                                  float (&o)[kD / 2]) {
    // Multiplying by 1 changes no bit, so the vote decides time alone.
    const bool needs = rescale[0] != 1.0f || rescale[1] != 1.0f;
    if (!__any_sync(0xffffffffu, needs)) return;
#pragma unroll
    for (int i = 0; i < kD / 2; ++i) o[i] *= rescale[i / 2 % 2];
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
                                               const float (&o)[kD / 2]) const {
    const PartialSlot<Shape> slot(params_, item.slot);
#pragma unroll
    for (int i = 0; i < kD / 8; ++i) {
      __stcg(slot.piece(i, threadIdx.x),
             make_float4(o[4 * i], o[4 * i + 1], o[4 * i + 2], o[4 * i + 3]));
    }
    if (lane_ % 4 != 0) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      __stcg(slot.rows(row_ + 8 * r), make_float2(rows.m[r], rows.l[r]));
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
  int len_kv_;
  bool modifies_;
  bool warp_has_rows_;  // else its products are of Q = 0 and nobody reads them
  DecodeRing<kStages> k_, v_;
  DecodeRing<2> items_;
};

}  // namespace attendant::kernels::sm90
