// The decode kernel: few query rows against long K and V, bound by memory.
//
// 1. Math. As prefill.cuh, but the rows of a KV head's whole group are packed
//    into one tile, so K and V are read once; scores are modified (scale,
//    softcap, ALiBi) before the maximum is taken, so any scale is served. At d
//    128 a key costs 512 bytes, 24 clocks of an SM's share of 4.8 TB/s; 64 rows
//    cost 8 clocks of tensor cores and 4 of exponentials, 128 rows twice that.
// 2. Work. A block takes chunks [begin, end) of one strand (decode_params.h),
//    left to right. A warp produces (copies in flight: all stages), each
//    warpgroup consumes 64 packed rows. Two blocks share a multiprocessor when
//    one warpgroup is enough: one computes while the other waits.
// 3. Folding. A chunk starts from nothing and is merged into what came before
//    (decode_merge.cuh), in shared memory where the block began at the strand's
//    first chunk, through memory elsewhere: the same arithmetic in the same
//    order, so the split changes no bit. A second kernel merges what lies in
//    memory: the last block to arrive would merge alone for longer than a
//    launch takes (b1 kv2048: 18.7 us instead of 13.1).
// 4. Barriers (phase 0 first; "empty" is waited for with parity 1 at first):
//      k/v_full   1 arrival + bytes                       consumers wait
//      k/v_empty  1 a consumer warp (products done)       producer waits
#pragma once

#include <cstdint>

#include "kernels/sm90/decode_item.cuh"
#include "kernels/sm90/decode_load.cuh"
#include "kernels/sm90/decode_merge.cuh"
#include "kernels/sm90/decode_output.cuh"
#include "kernels/sm90/decode_table.h"
#include "kernels/sm90/ptx/grid.cuh"
#include "kernels/sm90/ptx/mbarrier.cuh"
#include "kernels/sm90/ptx/register.cuh"
#include "kernels/sm90/ptx/tma.cuh"
#include "kernels/sm90/ptx/wgmma.cuh"
#include "kernels/sm90/softmax.cuh"

namespace attendant::kernels::sm90 {

// ---- Consumer ---------------------------------------------------------------

inline constexpr uint32_t kConsumersBarrier = 1;
inline constexpr uint32_t kDecodeScrubBarrier = 2;

// A thread's two packed rows: 16 w + l / 4 and that + 8 of its warpgroup's 64.
template <typename Shape, typename Element>
class DecodeConsumer {
 public:
  static constexpr int kN = Shape::kTileKv;
  static constexpr int kD = Shape::kHeadDim;
  static constexpr bool kKeepsInShared = Shape::kKeepsInShared;
  using Kept = Folded<kD, kKeepsInShared ? 128 * Shape::kWarpgroups : 1>;

  __device__ __forceinline__ DecodeConsumer(const DecodeParams& params,
                                            const DecodeItem& item,
                                            DecodeStorage<Shape>& storage,
                                            int warpgroup)
      : params_(params),
        item_(item),
        storage_(storage),
        warpgroup_(warpgroup),
        lane_(threadIdx.x % 32),
        row_(64 * warpgroup + threadIdx.x % 128 / 32 * 16 + lane_ / 4),
        q_descriptor_(ptx::wgmma_descriptor(
            ptx::smem_address(storage.q) + warpgroup * (64 * 128), 0)),
        k_descriptor_(ptx::wgmma_descriptor(ptx::smem_address(storage.k), 0)),
        v_descriptor_(
            ptx::wgmma_descriptor(ptx::smem_address(storage.v), kN * 128)) {
    const DecodeProblem& problem = *item.problem;
    const DecodeSequence& sequence = *item.sequence;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int packed =
          item.row0 + min(row_ + 8 * r, max(0, item.num_rows - 1));
      const int position = packed / problem.group_size;
      low_[r] = position + sequence.low_offset;
      high_[r] = min(sequence.len_kv, position + sequence.high_offset);
      diagonal_[r] = static_cast<float>(position + sequence.diagonal_shift);
      slope_log2_[r] = SlopeLog2(item, packed);
    }
    const int last = item.row0 + item.num_rows - 1;
    clear_begin_ = last / problem.group_size + sequence.low_offset;
    clear_end_ = min(sequence.len_kv,
                     item.row0 / problem.group_size + sequence.high_offset);
    scale_log2_ = problem.scale_log2;
    softcap_ = problem.softcap;
    modifies_ = problem.softcap > 0 || problem.slopes != nullptr;
    len_kv_ = sequence.len_kv;
    warp_has_rows_ = row_ - lane_ / 4 < item.num_rows;
  }

  __device__ __forceinline__ void Run() {
    if (item_.sequence->num_chunks == 0) {  // nothing to see: O = 0, LSE = -inf
      float o[kD / 2];
#pragma unroll
      for (int i = 0; i < kD / 2; ++i) o[i] = 0.0f;
      StoreFinalAs<kD, Element>(params_, item_, PartialRows{}, o, row_,
                                lane_ % 4);
      return;
    }
    RunChunks();
  }

 private:
  __device__ __forceinline__ void RunChunks() {
    float o[kD / 2];
    PartialRows rows;
    float4 local[kKeepsInShared ? 1 : kD / 8];
    Kept folded(kKeepsInShared ? storage_.kept[0] + threadIdx.x
                               : Hidden(local));
    const int chunk_keys = item_.sequence->chunk_keys;
    const int key_end = item_.key_end;
    int key = item_.key_begin;
    for (int chunk = item_.chunk_begin; chunk < item_.chunk_end; ++chunk) {
      const int end = min(key_end, key + chunk_keys);
      rows = PartialRows();
      for (int accumulate = 0; key < end; key += kN, accumulate = 1) {
        RunBlock(key, rows, o, accumulate);
      }
      ReduceSums(rows);
      EndChunk(chunk, rows, o, folded);
    }
    if (item_.sequence->items_per_strand > 1) return;
    StoreFinalAs<kD, Element>(params_, item_, rows, o, row_, lane_ % 4);
  }

  // An address that the compiler cannot see through keeps O out of registers.
  static __device__ __forceinline__ float4* Hidden(float4* memory) {
    asm volatile("" : "+l"(memory)::"memory");
    return memory;
  }

  // Chunks of the strand's first item are folded, at its end into slot 0 (or,
  // if they are all there are, left in `rows` and `o`); every other chunk has a
  // slot of its own.
  __device__ __forceinline__ void EndChunk(int chunk, PartialRows& rows,
                                           float (&o)[kD / 2],
                                           Kept& folded) const {
    if (!warp_has_rows_) return;
    if (item_.chunk_begin > 0) {
      StorePartial(chunk - item_.sequence->chunks_per_item + 1, rows, o);
      return;
    }
    if (chunk > 0) folded.MergeInto(rows, o);
    if (chunk + 1 < item_.chunk_end) {
      folded.Keep(rows, o);
    } else if (item_.sequence->items_per_strand > 1) {
      StorePartial(0, rows, o);
    }
  }

  // S = Q K^T, softmax, O += P V of the next block of the ring.
  __device__ __forceinline__ void RunBlock(int key, PartialRows& rows,
                                           float (&o)[kD / 2], int accumulate) {
    float s[kN / 2];
    uint32_t p[kN / 4];
    ptx::mbarrier_wait(ptx::smem_address(&storage_.k_full[ring_.stage]),
                       ring_.phase);
    ptx::wgmma_fence();
    IssueQk(s);
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    Release(storage_.k_empty);
    if (warp_has_rows_) {
      float rescale[2];
      Modify(s, key);
      Softmax(s, rows, rescale);
      if (accumulate) {
#pragma unroll
        for (int i = 0; i < kD / 2; ++i) o[i] *= rescale[i / 2 % 2];
      }
    }
#pragma unroll
    for (int i = 0; i < kN / 4; ++i) {
      p[i] = ptx::pack<Element>(s[2 * i], s[2 * i + 1]);
    }
    ptx::mbarrier_wait(ptx::smem_address(&storage_.v_full[ring_.stage]),
                       ring_.phase);
    ScrubV(len_kv_ - key);
    ptx::wgmma_fence();
    IssuePv(p, o, accumulate);
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    Release(storage_.v_empty);
    ring_.Advance();
  }

  __device__ __forceinline__ static void ReduceSums(PartialRows& rows) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      rows.l[r] += __shfl_xor_sync(0xffffffffu, rows.l[r], 1);
      rows.l[r] += __shfl_xor_sync(0xffffffffu, rows.l[r], 2);
    }
  }

  __device__ __forceinline__ void IssueQk(float (&s)[kN / 2]) const {
    const uint64_t k =
        k_descriptor_ + ring_.stage * (DecodeStorage<Shape>::kTileBytes / 16);
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

  __device__ __forceinline__ void IssuePv(const uint32_t (&p)[kN / 4],
                                          float (&o)[kD / 2],
                                          int accumulate) const {
    const uint64_t v =
        v_descriptor_ + ring_.stage * (DecodeStorage<Shape>::kTileBytes / 16);
#pragma unroll
    for (int step = 0; step < kN / 16; ++step) {
      ptx::WgmmaRs<kD, Element>::issue(o, p + 4 * step,
                                       v + step * (16 * 128 / 16),
                                       step == 0 ? accumulate : 1);
    }
  }

  // Scores to log2-unit logits, -inf where the row may not look.
  __device__ __forceinline__ void Modify(float (&s)[kN / 2], int key) const {
    const int column = key + 2 * (lane_ % 4);
    if (modifies_) {
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) {
        const int r = i / 2 % 2;
        const ScoreMod mod = {scale_log2_, softcap_, slope_log2_[r]};
        const int j = column + 8 * (i / 4) + i % 2;
        s[i] = mod(s[i], fabsf(diagonal_[r] - static_cast<float>(j)));
      }
    } else {
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) s[i] *= scale_log2_;
    }
    if (key + kN > clear_end_ || key < clear_begin_) {
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) {
        const int r = i / 2 % 2;
        const int j = column + 8 * (i / 4) + i % 2;
        if (j < low_[r] || j >= high_[r]) s[i] = -INFINITY;
      }
    }
  }

  // x -> p; updates maximum and this thread's share of the sum.
  __device__ __forceinline__ void Softmax(float (&s)[kN / 2], PartialRows& rows,
                                          float (&rescale)[2]) const {
    float maximum[2] = {rows.m[0], rows.m[1]};
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
      base[r] = maximum[r] == -INFINITY ? 0.0f : maximum[r];
      rescale[r] = ptx::ex2_approx(rows.m[r] - base[r]);
      rows.l[r] *= rescale[r];
      rows.m[r] = maximum[r];
    }
#pragma unroll
    for (int i = 0; i < kN / 2; ++i) {
      s[i] = ptx::ex2_approx(s[i] - base[i / 2 % 2]);
      rows.l[i / 2 % 2] += s[i];
    }
  }

  // Zeros V's rows from `first` on in its stage: P is 0 there, 0 * NaN is not.
  __device__ __forceinline__ void ScrubV(int first) const {
    if (first >= kN) return;
    uint8_t* v = storage_.v[ring_.stage];
    constexpr int kPieces = kD / 8;
    for (int i = threadIdx.x % 128; i < (kN - first) * kPieces; i += 128) {
      const int row = first + i / kPieces;
      const int piece = i % kPieces;
      *reinterpret_cast<uint4*>(v + (piece / 8 * kN + row) * 128 +
                                piece % 8 * 16) = make_uint4(0, 0, 0, 0);
    }
    ptx::fence_proxy_async();
    ptx::named_barrier_sync(kDecodeScrubBarrier + warpgroup_, 128);
  }

  __device__ __forceinline__ void Release(uint64_t* empty) const {
    if (lane_ == 0) {
      ptx::mbarrier_arrive(ptx::smem_address(empty + ring_.stage));
    }
  }

  template <int kCount>
  __device__ __forceinline__ void StorePartial(int slot,
                                               const PartialRows& rows,
                                               const float (&o)[kCount]) const {
    const PartialSlot<Shape> partial =
        PartialSlot<Shape>::Of(params_, item_, slot);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = row_ + 8 * r;
      if (row >= item_.num_rows) continue;
#pragma unroll
      for (int i = 0; i < kD / 8; ++i) {
        *reinterpret_cast<float2*>(partial.o(row) + 8 * i + 2 * (lane_ % 4)) =
            make_float2(o[4 * i + 2 * r], o[4 * i + 2 * r + 1]);
      }
      if (lane_ % 4 == 0)
        *partial.rows(row) = make_float2(rows.m[r], rows.l[r]);
    }
  }

  const DecodeParams& params_;
  const DecodeItem item_;
  DecodeStorage<Shape>& storage_;
  const int warpgroup_;
  const int lane_;
  const int row_;
  const uint64_t q_descriptor_, k_descriptor_, v_descriptor_;
  int low_[2], high_[2];
  float diagonal_[2], slope_log2_[2];
  int clear_begin_, clear_end_;  // keys in between need no mask
  float scale_log2_, softcap_;
  int len_kv_;
  bool modifies_;
  bool warp_has_rows_;  // else its products are of Q = 0 and nobody reads them
  DecodeRing<Shape::kStages> ring_;
};

// ---- Kernels ----------------------------------------------------------------

template <typename Shape>
__device__ __forceinline__ void InitDecodeBarriers(
    DecodeStorage<Shape>& storage) {
  for (int i = 0; i < Shape::kStages; ++i) {
    ptx::mbarrier_init(ptx::smem_address(&storage.k_full[i]), 1);
    ptx::mbarrier_init(ptx::smem_address(&storage.v_full[i]), 1);
    ptx::mbarrier_init(ptx::smem_address(&storage.v_arrived[i]), 1);
    ptx::mbarrier_init(ptx::smem_address(&storage.k_empty[i]),
                       4 * Shape::kWarpgroups);
    ptx::mbarrier_init(ptx::smem_address(&storage.v_empty[i]),
                       4 * Shape::kWarpgroups);
  }
  ptx::fence_mbarrier_init();
}

template <typename Shape, typename Element, bool kGrouped>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocksPerSm)
    DecodeKernel(const __grid_constant__ DecodeParams params) {
  using Storage = DecodeStorage<Shape>;
  // 228 KiB a multiprocessor, of which 1 KiB a block is the system's.
  static_assert(sizeof(Storage) <= 233472 / Shape::kBlocksPerSm - 1024);
  extern __shared__ __align__(1024) uint8_t smem[];
  Storage& storage = *reinterpret_cast<Storage*>(smem);
  ptx::grid_launch_dependents();  // the combine kernel
  if (threadIdx.x == 0) InitDecodeBarriers<Shape>(storage);
  if (!kGrouped && threadIdx.x == 32) {
    ptx::prefetch_tensormap(params.maps + kDecodeMapK);
    ptx::prefetch_tensormap(params.maps + kDecodeMapV);
  }
  __syncthreads();
  const DecodeItem item = FindItem<kGrouped>(params, blockIdx.x, Shape::kTileQ);
  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  if (warpgroup == Shape::kWarpgroups) {
    ptx::setmaxnreg_dec<Shape::kProducerRegisters>();
    const int thread = threadIdx.x - 128 * Shape::kWarpgroups;
    if (thread == 0) {
      ProduceItem<Shape, kGrouped>(item, params, storage);
    } else if (thread >= 32 && params.scrub_exponent != 0) {
      ScrubItem<Shape>(item, params.scrub_exponent, thread - 32, storage);
    }
  } else {
    ptx::setmaxnreg_inc<Shape::kConsumerRegisters>();
    LoadQ<Shape>(item, storage);
    ptx::named_barrier_sync(kConsumersBarrier, 128 * Shape::kWarpgroups);
    DecodeConsumer<Shape, Element>(params, item, storage, warpgroup).Run();
  }
}

}  // namespace attendant::kernels::sm90
