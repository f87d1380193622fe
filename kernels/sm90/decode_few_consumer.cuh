// A consumer warp of the decode kernel for few rows. See decode_few.cuh.
#pragma once

#include <cstdint>

#include "kernels/sm90/decode_few_fold.cuh"
#include "kernels/sm90/decode_few_meeting.cuh"
#include "kernels/sm90/decode_few_storage.cuh"
#include "kernels/sm90/decode_item.cuh"
#include "kernels/sm90/decode_load.cuh"
#include "kernels/sm90/ptx/math.cuh"
#include "kernels/sm90/ptx/mbarrier.cuh"
#include "kernels/sm90/ptx/mma.cuh"
#include "kernels/sm90/scrub.cuh"
#include "kernels/sm90/softmax.cuh"

namespace attendant::kernels::sm90 {

// Holds S and O transposed: keys (of S) or columns (of O) l / 4 and that + 8,
// packed rows 2 (l % 4) + {0, 1}.
template <typename Shape, typename Element, bool kGrouped, bool kTails>
class DecodeFewConsumer {
 public:
  using Share = FewShare<Shape>;
  static constexpr int kD = Shape::kHeadDim;
  static constexpr int kVectors = Share::kVectors;

  __device__ __forceinline__ DecodeFewConsumer(const DecodeParams& params,
                                               DecodeFewStorage<Shape>& storage)
      : params_(params),
        storage_(storage),
        lane_(threadIdx.x % 32),
        slot_(threadIdx.x / 32 % 4),
        turn_(threadIdx.x / 128),
        scrub_exponent_(params.scrub_exponent) {
    // ldmatrix rows: of K, keys 0..7 and 8..15 by 8 columns, then columns + 8;
    // of V, keys 0..7 by 16 columns, then keys 8..15. The 16-byte piece of a
    // row is in 128-byte swizzle.
    const int row = lane_ % 8;
    const int middle = lane_ / 8 % 2;
    const int upper = lane_ / 16;
    const int tile = slot_ * 16 * 128;
    k_lane_ = tile + (middle * 8 + row) * 128 + (upper ^ row) * 16;
    v_lane_ = tile + (upper * 8 + row) * 128 + (middle ^ row) * 16;
  }

  __device__ __forceinline__ void Run() {
    DecodeRing<2> items;
    while (true) {
      ptx::mbarrier_wait(ptx::smem_address(&storage_.item_full[items.stage]),
                         items.phase);
      const int index = storage_.item[items.stage];
      if (index < 0) return;
      ptx::mbarrier_arrive(
          ptx::smem_address(&storage_.item_empty[items.stage]));
      const DecodeItem item =
          FindItem<kGrouped, false, kTails>(params_, index, Shape::kRows);
      SetBounds(item);
      ptx::mbarrier_wait(ptx::smem_address(&storage_.q_full[items.stage]),
                         items.phase);
      TakeQ(items.stage);
      ptx::mbarrier_arrive(ptx::smem_address(&storage_.q_empty[items.stage]));
      items.Advance();
      RunItem(item);
    }
  }

 private:
  __device__ __forceinline__ void RunItem(const DecodeItem& item) {
    FewFold folds[kVectors];
    const int column = Share::Column();
    const bool is_tail = kTails && item.is_tail;
    // Tails, and items of several chunks that end within an octet.
    const bool stores_chunks =
        is_tail || (item.unit == 1 && item.chunk_end - item.chunk_begin > 1);
    const int first_slot =
        is_tail ? item.tail_slot + DecodeTails::kKept : item.slot;
    const int chunk_keys = item.sequence->chunk_keys;
    int key = item.key_begin;
    for (int chunk = item.chunk_begin; chunk < item.chunk_end; ++chunk) {
      const int end = min(item.key_end, key + chunk_keys);
      RunChunk(key, end);
      key = end;
      PutWarps();
      const FewSlot<Shape> slot(params_, first_slot + chunk - item.chunk_begin);
#pragma unroll
      for (int k = 0; k < kVectors; ++k) {
        const FoldedVector vector = MergeWarps(k);
        if (stores_chunks) {
          if (Share::Row(k) < item.num_rows) {
            slot.Store(vector, Share::Row(k), column);
          }
          continue;
        }
        if (chunk > item.chunk_begin) folds[k].Begin(chunk);
        folds[k].octet.Append(vector);
      }
      ptx::mbarrier_arrive(ptx::smem_address(&storage_.merge_empty));
    }
    if constexpr (kTails) {
      if (item.tail_chunks > 0 &&
          !MeetTail(FewMeeting<Shape>(params_, storage_), item, folds)) {
        return;
      }
    }
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (item.unit == 1) {
        folds[k].strand = folds[k].octet;  // one chunk
      } else {
        folds[k].End();
      }
    }
    if (item.parts > 1) {
      const FewSlot<Shape> slot(params_, item.slot);
#pragma unroll
      for (int k = 0; k < kVectors; ++k) {
        if ((stores_chunks && !is_tail) || Share::Row(k) >= item.num_rows) {
          continue;
        }
        slot.Store(folds[k].strand, Share::Row(k), column);
      }
      if (!FewMeeting<Shape>(params_, storage_)
               .ArrivesLast(item.sequence->first_strand + item.strand,
                            item.parts)) {
        return;
      }
    }
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      const int row = Share::Row(k);
      if (row >= item.num_rows) continue;
      if (item.parts > 1) {
        folds[k].strand = FoldSlots<Shape>(params_, item, row, column);
      }
      StoreFewFinal<Element>(params_, item, folds[k].strand, row, column);
    }
  }

  // Q^T as operand B: row l / 4, columns 2 (l % 4) + {0, 1} and those + 8.
  __device__ __forceinline__ void TakeQ(int stage) {
    const uint32_t q =
        ptx::smem_address(&storage_.q[stage][lane_ % 8][lane_ / 8 * 8]);
#pragma unroll
    for (int i = 0; i < kD / 32; ++i) {
      uint32_t pair[4];
      ptx::ldmatrix_x4(pair, q + i * 64);
#pragma unroll
      for (int e = 0; e < 4; ++e) q_[2 * i + e / 2][e % 2] = pair[e];
    }
  }

  __device__ __forceinline__ void SetBounds(const DecodeItem& item) {
    const DecodeProblem& problem = *item.problem;
    const DecodeSequence& sequence = *item.sequence;
    const int last = max(0, item.num_rows - 1);
    const SmallDivisor divisor(problem.group_size);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int packed = min(2 * (lane_ % 4) + r, last);
      const int position = divisor.Divide(packed);
      low_[r] = position + sequence.low_offset;
      high_[r] = min(sequence.len_kv, position + sequence.high_offset);
      diagonal_[r] = static_cast<float>(position + sequence.diagonal_shift);
      slope_log2_[r] = SlopeLog2(item, packed);
    }
    clear_begin_ = divisor.Divide(last) + sequence.low_offset;
    clear_end_ = min(sequence.len_kv, sequence.high_offset);
    scale_log2_ = problem.scale_log2;
    softcap_ = problem.softcap;
    modifies_ = problem.softcap > 0 || problem.slopes != nullptr;
    len_kv_ = sequence.len_kv;
  }

  // ---- A chunk's keys -------------------------------------------------------

  // Keys [key, end) of one chunk, from nothing, into o_, m_ and l_ (of this
  // lane's keys alone). The warps' halves take turns at the key blocks.
  __device__ __forceinline__ void RunChunk(int key, int end) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      m_[r] = -INFINITY;
      l_[r] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kD / 16; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) o_[i][e] = 0.0f;
    }
    for (int turn = 0; key < end; key += Shape::kTileKv, turn ^= 1) {
      // Every warp sees and frees every block: a phase that it had not seen it
      // might take for a later one of the same parity.
      ptx::mbarrier_wait(ptx::smem_address(&storage_.k_full[ring_.stage]),
                         ring_.phase);
      if (turn == turn_) RunTile(key + 16 * slot_);
      __syncwarp();
      if (lane_ == 0) {
        ptx::mbarrier_arrive(ptx::smem_address(&storage_.empty[ring_.stage]));
      }
      ring_.Advance();
    }
  }

  // The warp's 16 keys from `key` on of the ring's next block, whose K is
  // there.
  __device__ __forceinline__ void RunTile(int key) {
    float s[4];
    uint32_t p[2];
    Scores(s);
    Modify(s, key);
    Softmax(s, p);
    ptx::mbarrier_wait(ptx::smem_address(&storage_.v_full[ring_.stage]),
                       ring_.phase);
    if (key + 16 <= len_kv_ && scrub_exponent_ == 0) {
      AddValues<false>(p, key);
    } else {
      AddValues<true>(p, key);
    }
  }

  // S^T = K Q^T. Two chains of products, for their latency.
  __device__ __forceinline__ void Scores(float (&s)[4]) const {
    const uint32_t k = ptx::smem_address(storage_.k[ring_.stage]) + k_lane_;
    float odd[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) s[e] = odd[e] = 0.0f;
#pragma unroll
    for (int step = 0; step < kD / 16; ++step) {
      uint32_t a[4];
      ptx::ldmatrix_x4(
          a, (k + step / 4 * (Shape::kTileKv * 128)) ^ (step % 4 * 32));
      ptx::mma_m16n8k16<Element>(step % 2 == 0 ? s : odd, a, q_[step]);
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) s[e] += odd[e];
  }

  // Scores of the 16 keys from `first` on to log2-unit logits, -inf where the
  // row may not look.
  __device__ __forceinline__ void Modify(float (&s)[4], int first) const {
    const int key = first + lane_ / 4;
    if (modifies_) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const ScoreMod mod = {scale_log2_, softcap_, slope_log2_[e % 2]};
        const int j = key + e / 2 * 8;
        s[e] = mod(s[e], fabsf(diagonal_[e % 2] - static_cast<float>(j)));
      }
    } else {
#pragma unroll
      for (int e = 0; e < 4; ++e) s[e] *= scale_log2_;
    }
    if (first < clear_begin_ || first + 16 > clear_end_) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int j = key + e / 2 * 8;
        if (j < low_[e % 2] || j >= high_[e % 2]) s[e] = -INFINITY;
      }
    }
  }

  // Logits to P^T as operand B; maxima, sums and O follow.
  __device__ __forceinline__ void Softmax(float (&s)[4], uint32_t (&p)[2]) {
    float rescale[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float maximum = fmaxf(m_[r], fmaxf(s[r], s[r + 2]));
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2) {
        maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, lanes));
      }
      const float base = maximum == -INFINITY ? 0.0f : maximum;
      rescale[r] = ptx::ex2_approx(m_[r] - base);
      m_[r] = maximum;
      s[r] = ptx::ex2_approx(s[r] - base);
      s[r + 2] = ptx::ex2_approx(s[r + 2] - base);
      l_[r] = l_[r] * rescale[r] + (s[r] + s[r + 2]);
    }
#pragma unroll
    for (int i = 0; i < kD / 16; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) o_[i][e] *= rescale[e % 2];
    }
    p[0] = ptx::movmatrix_trans(ptx::pack<Element>(s[0], s[1]));
    p[1] = ptx::movmatrix_trans(ptx::pack<Element>(s[2], s[3]));
  }

  // O^T += V^T P^T. kScrubs: V's rows past the sequence are read as 0 (P is 0
  // there, 0 * NaN is not), and in a repair all that is not finite.
  template <bool kScrubs>
  __device__ __forceinline__ void AddValues(const uint32_t (&p)[2], int key) {
    const uint32_t v = ptx::smem_address(storage_.v[ring_.stage]) + v_lane_;
    uint32_t keep[2] = {};
    if constexpr (kScrubs) {
      const int rest = len_kv_ - key - 2 * (lane_ % 4);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        keep[h] = (rest > 8 * h ? 0x0000ffffu : 0) |
                  (rest > 8 * h + 1 ? 0xffff0000u : 0);
      }
    }
#pragma unroll
    for (int i = 0; i < kD / 16; ++i) {
      uint32_t a[4];
      ptx::ldmatrix_x4_trans(
          a, (v + i / 4 * (Shape::kTileKv * 128)) ^ (i % 4 * 32));
      if constexpr (kScrubs) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          a[e] &= keep[e / 2];
          if (scrub_exponent_ != 0) a[e] = ScrubPair(a[e], scrub_exponent_);
        }
      }
      ptx::mma_m16n8k16<Element>(o_[i], a, p);
    }
  }

  // ---- The end of a chunk and of an item ------------------------------------

  // Every warp's result to shared memory, where it stays until the next call.
  __device__ __forceinline__ void PutWarps() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2) {
        l_[r] += __shfl_xor_sync(0xffffffffu, l_[r], lanes);
      }
    }
    ptx::mbarrier_wait(ptx::smem_address(&storage_.merge_empty),
                       merge_phase_ ^ 1);
    merge_phase_ ^= 1;
    const int warp = threadIdx.x / 32;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = 2 * (lane_ % 4) + r;
      float* const o = &storage_.merge_o[warp][row][lane_ / 4];
#pragma unroll
      for (int i = 0; i < kD / 8; ++i) o[8 * i] = o_[i / 2][i % 2 * 2 + r];
      if (lane_ < 4) storage_.merge_ml[warp][row] = make_float2(m_[r], l_[r]);
    }
    SyncFewConsumers<Shape>();
  }

  // Vector k of this thread's share of the chunk.
  __device__ __forceinline__ FoldedVector MergeWarps(int k) const {
    FoldedVector chunk;
    const int row = Share::Row(k);
    if (row >= Shape::kRows) return chunk;
    float2 ml[Shape::kWarps];
#pragma unroll
    for (int warp = 0; warp < Shape::kWarps; ++warp) {
      ml[warp] = storage_.merge_ml[warp][row];
      chunk.m = fmaxf(chunk.m, ml[warp].x);
    }
    const float base = chunk.m == -INFINITY ? 0.0f : chunk.m;
#pragma unroll
    for (int warp = 0; warp < Shape::kWarps; ++warp) {
      const float weight = ptx::ex2_approx(ml[warp].x - base);
      const float4 o = *reinterpret_cast<const float4*>(
          &storage_.merge_o[warp][row][Share::Column()]);
      chunk.l = __fmaf_rn(ml[warp].y, weight, chunk.l);
      chunk.o[0] = __fmaf_rn(o.x, weight, chunk.o[0]);
      chunk.o[1] = __fmaf_rn(o.y, weight, chunk.o[1]);
      chunk.o[2] = __fmaf_rn(o.z, weight, chunk.o[2]);
      chunk.o[3] = __fmaf_rn(o.w, weight, chunk.o[3]);
    }
    return chunk;
  }

  const DecodeParams& params_;
  DecodeFewStorage<Shape>& storage_;
  const int lane_;
  const int slot_;  // which 16 of a block's 64 keys
  const int turn_;  // at a chunk's even or odd key blocks
  const uint32_t scrub_exponent_;
  uint32_t k_lane_, v_lane_;
  uint32_t q_[kD / 16][2];
  float o_[kD / 16][4];
  float m_[2], l_[2];
  int low_[2], high_[2];
  float diagonal_[2], slope_log2_[2];
  int clear_begin_, clear_end_;  // keys in between need no mask
  float scale_log2_, softcap_;
  int len_kv_;
  bool modifies_;
  uint32_t merge_phase_ = 0;
  DecodeRing<Shape::kStages> ring_;
};

}  // namespace attendant::kernels::sm90
