// Shared memory of a decode block, and what fills it: items, K and V by one
// warp and the copy engine, Q by another or the consumers. See
// decode_split_kv.cuh.
#pragma once

#include <cstdint>

#include "kernels/sm90/decode_item.cuh"
#include "kernels/sm90/decode_table.h"
#include "kernels/sm90/ptx/cp_async.cuh"
#include "kernels/sm90/ptx/mbarrier.cuh"
#include "kernels/sm90/ptx/register.cuh"
#include "kernels/sm90/ptx/tma.cuh"
#include "kernels/sm90/scrub.cuh"

namespace attendant::kernels::sm90 {

inline constexpr uint32_t kDecodeWarpgroupBarrier = 2;  // and the next
inline constexpr uint32_t kDecodeConsumersBarrier = 4;
inline constexpr uint32_t kDecodeTurnBarrier = 10;

template <typename Shape>
struct alignas(1024) DecodeStorage {
  static constexpr int kTileBytes = Shape::kTileKv * Shape::kHeadDim * 2;
  alignas(1024) uint8_t q[Shape::kTileQ * Shape::kHeadDim * 2];
  alignas(1024) uint8_t k[Shape::kStages][kTileBytes];
  alignas(1024) uint8_t v[Shape::kStages][kTileBytes];
  // What each consumer's chunks of a quad came to so far, a warpgroup after the
  // other; at an item's end its partial result, see PutRows.
  float4 kept[Shape::kWarpgroups]
             [Shape::kKeepsInShared ? Shape::kHeadDim / 8 : 1][128];
  float2 rows[Shape::kTileQ];  // of the partial result: maxima and sums
  uint64_t k_full[Shape::kStages], k_empty[Shape::kStages];
  uint64_t v_full[Shape::kStages], v_empty[Shape::kStages];
  uint64_t v_arrived[Shape::kStages];  // repair only, see prefill.cuh
  uint64_t item_full[2], item_empty[2];
  uint64_t q_full;      // the block's first item's, if it comes by its map
  uint64_t merge_full;  // what others made of this block's share
  uint32_t takes_all, leaves;  // see StrandExchange
  uint32_t touched;            // see TouchParams
  DecodeItemNumbers items[2];
};

template <int kStages>
struct DecodeRing {
  uint32_t stage = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void Advance() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

// For descriptors, which the assembler might else derive from a vector
// register, anew for each block of keys.
__device__ __forceinline__ uint32_t UniformAddress(const void* smem) {
  return ptx::uniform(ptx::smem_address(smem));
}

// ---- Producer: one warp -----------------------------------------------------

// Takes items from the launch's queue and keeps the rings full, across items.
template <typename Shape, bool kGrouped>
class DecodeProducer {
 public:
  __device__ __forceinline__ DecodeProducer(const DecodeParams& params,
                                            DecodeStorage<Shape>& storage)
      : params_(params), storage_(storage), lane_(threadIdx.x % 32) {}

  // From `item`, the block's first, on.
  __device__ __forceinline__ void Run(DecodeItem item) {
    const bool queues = params_.num_items > static_cast<int>(gridDim.x);
    int next = params_.num_items;
    do {
      if (queues && lane_ == 0) {
        next = gridDim.x + atomicAdd(&params_.counters->next_tile, 1);
      }
      LoadItem(item);
      if (!queues) break;
      next = ptx::uniform(__shfl_sync(0xffffffffu, next, 0));
      if (next >= params_.num_items) break;
      item = FindItem<kGrouped, true>(params_, next, Shape::kTileQ);
    } while (true);
    DecodeItemNumbers none;
    none.record = -1;
    Publish(none);
    if (lane_ == 0 && queues &&
        atomicInc(&params_.counters->finished_blocks, gridDim.x - 1) ==
            gridDim.x - 1) {
      params_.counters->next_tile = 0;
    }
  }

 private:
  using Ring = DecodeRing<Shape::kStages>;
  static constexpr int kTileBytes = DecodeStorage<Shape>::kTileBytes;

  __device__ __forceinline__ void Publish(const DecodeItemNumbers& item) {
    ptx::mbarrier_wait(ptx::smem_address(&storage_.item_empty[items_.stage]),
                       items_.phase ^ 1);
    if (lane_ == 0) {
      storage_.items[items_.stage] = item;
      ptx::mbarrier_arrive(
          ptx::smem_address(&storage_.item_full[items_.stage]));
    }
    items_.Advance();
  }

  // Publishes the item once its first copy is on its way.
  __device__ __forceinline__ void LoadItem(const DecodeItem& item) {
    if constexpr (kGrouped) {
      ptx::fence_tensormap_acquire(item.maps + kDecodeMapK);
      ptx::fence_tensormap_acquire(item.maps + kDecodeMapV);
    }
    const int kv_begin = item.sequence->kv_begin;
    const int begin = ptx::uniform(kv_begin + item.key_begin);
    const int end = ptx::uniform(kv_begin + item.key_end);
    const int k_head = ptx::uniform(item.kv_head * item.problem->k.head);
    const int k_batch = ptx::uniform(item.batch * item.problem->k.batch);
    const int v_head = ptx::uniform(item.kv_head * item.problem->v.head);
    const int v_batch = ptx::uniform(item.batch * item.problem->v.batch);
    uint64_t* const v_full =
        params_.scrub_exponent == 0 ? storage_.v_full : storage_.v_arrived;
    if (begin < end) {
      LoadTile(storage_.k, storage_.k_full, storage_.k_empty, k_,
               item.maps + kDecodeMapK, begin, k_head, k_batch);
    }
    Publish(item);
    // In the order of use: the next scores come before these values.
#pragma unroll 1
    for (int row = begin; row < end; row += Shape::kTileKv) {
      if (row + Shape::kTileKv < end) {
        LoadTile(storage_.k, storage_.k_full, storage_.k_empty, k_,
                 item.maps + kDecodeMapK, row + Shape::kTileKv, k_head,
                 k_batch);
      }
      LoadTile(storage_.v, v_full, storage_.v_empty, v_,
               item.maps + kDecodeMapV, row, v_head, v_batch);
    }
  }

  __device__ __forceinline__ void LoadTile(uint8_t (*tiles)[kTileBytes],
                                           uint64_t* full, uint64_t* empty,
                                           Ring& place, const CUtensorMap* map,
                                           int row, int head, int batch) const {
    constexpr int kRows = Shape::kBoxRows;
    const uint32_t tile = ptx::smem_address(tiles[place.stage]);
    const uint32_t barrier = ptx::smem_address(full + place.stage);
    ptx::mbarrier_wait(ptx::smem_address(empty + place.stage), place.phase ^ 1);
    if (lane_ == 0) ptx::mbarrier_arrive_expect_tx(barrier, kTileBytes);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < Shape::kHeadDim / 64; ++i) {
#pragma unroll
      for (int first = 0; first < Shape::kTileKv; first += kRows) {
        ptx::tma_load_4d_elect(tile + (i * Shape::kTileKv + first) * 128, map,
                               barrier, 64 * i, row + first, head, batch,
                               ptx::kEvictFirst);
      }
    }
    place.Advance();
  }

  const DecodeParams& params_;
  DecodeStorage<Shape>& storage_;
  const int lane_;
  Ring k_, v_;
  DecodeRing<2> items_;
};

// Waits for the item published at `place`; false if there are no more. Every
// thread releases it.
template <typename Shape>
__device__ __forceinline__ bool AwaitItem(DecodeStorage<Shape>& storage,
                                          const DecodeRing<2>& place) {
  ptx::mbarrier_wait(ptx::smem_address(&storage.item_full[place.stage]),
                     place.phase);
  return ptx::uniform(storage.items[place.stage].record) >= 0;
}
template <typename Shape>
__device__ __forceinline__ void ReleaseItem(DecodeStorage<Shape>& storage,
                                            DecodeRing<2>& place) {
  ptx::mbarrier_arrive(ptx::smem_address(&storage.item_empty[place.stage]));
  place.Advance();
}

// Of a repair: V as it arrives, by kScrubThreads threads.
template <typename Shape>
__device__ __forceinline__ void ScrubItems(const DecodeParams& params,
                                           int thread,
                                           DecodeStorage<Shape>& storage) {
  DecodeRing<Shape::kStages> ring;
  DecodeRing<2> items;
  while (AwaitItem(storage, items)) {
    const int key_begin = storage.items[items.stage].key_begin;
    const int key_end = storage.items[items.stage].key_end;
    ReleaseItem(storage, items);
    for (int key = key_begin; key < key_end; key += Shape::kTileKv) {
      ptx::mbarrier_wait(ptx::smem_address(&storage.v_arrived[ring.stage]),
                         ring.phase);
      ScrubTile(storage.v[ring.stage], DecodeStorage<Shape>::kTileBytes,
                params.scrub_exponent, thread);
      ptx::fence_proxy_async();
      ptx::named_barrier_sync(kScrubbersBarrier, kScrubThreads);
      if (thread == 0) {
        ptx::mbarrier_arrive(ptx::smem_address(&storage.v_full[ring.stage]));
      }
      ring.Advance();
    }
  }
}

// ---- Q: a warpgroup's own 64 rows, into 128-byte swizzle --------------------

// The block's first, by a warp and its map.
template <typename Shape, bool kGrouped>
__device__ __forceinline__ void LoadQByMap(const DecodeItem& item,
                                           DecodeStorage<Shape>& storage) {
  constexpr int kRows = DecodeProblem::kQBoxRows;
  if constexpr (kGrouped) {
    ptx::fence_tensormap_acquire(item.maps + kDecodeMapQ);
  }
  const int group = item.problem->group_size;
  const uint32_t barrier = ptx::smem_address(&storage.q_full);
  const int head = ptx::uniform(item.kv_head * group);
  const int batch = ptx::uniform(item.batch * item.problem->q_by_heads.batch);
  int position = item.sequence->q_begin + SmallDivisor(group).Divide(item.row0);
  if (threadIdx.x % 32 == 0) {
    ptx::mbarrier_arrive_expect_tx(barrier, sizeof(storage.q));
  }
  __syncwarp();
#pragma unroll 1
  for (int row = 0; row < Shape::kTileQ; row += kRows) {
#pragma unroll
    for (int i = 0; i < Shape::kHeadDim / 64; ++i) {
      ptx::tma_load_4d_elect(
          ptx::smem_address(storage.q) + (i * Shape::kTileQ + row) * 128,
          item.maps + kDecodeMapQ, barrier, 64 * i, head,
          ptx::uniform(position * item.problem->q_by_heads.head), batch,
          ptx::kEvictLast);
    }
    position += SmallDivisor(group).Divide(kRows);
  }
}

// Eight elements, zeros from number `count` on.
__device__ __forceinline__ void CopyByElements(const uint16_t* source,
                                               int count, uint8_t* target) {
#pragma unroll 1
  for (int e = 0; e < 8; ++e) {
    reinterpret_cast<uint16_t*>(target)[e] = e < count ? source[e] : 0;
  }
}

// Begins this thread's share; AwaitQ when it must be there.
template <typename Shape>
__device__ __forceinline__ void LoadQ(const DecodeItem& item, int first_row,
                                      DecodeStorage<Shape>& storage) {
  constexpr int kPieces = Shape::kHeadDim / 8;  // of 16 bytes
  constexpr int kStep = 128 / kPieces;          // rows
  const DecodeProblem& problem = *item.problem;
  const int group = problem.group_size;
  const SmallDivisor divisor(group);
  const int piece = threadIdx.x % kPieces;
  const int columns = problem.head_dim - 8 * piece;
  const uint16_t* const q = static_cast<const uint16_t*>(problem.q) +
                            item.batch * problem.q_batch_stride +
                            item.sequence->q_begin * problem.q_row_stride +
                            item.kv_head * group * problem.q_head_stride +
                            (columns > 0 ? 8 * piece : 0);
  uint8_t* const box = storage.q + piece / 8 * (Shape::kTileQ * 128);
  const bool is_vectorized = problem.q_is_vectorized;
  int row = first_row + threadIdx.x % 128 / kPieces;
#pragma unroll 2
  for (int i = 0; i < 64 / kStep; ++i, row += kStep) {
    const bool is_there = row < item.num_rows && columns > 0;
    const int packed = item.row0 + (is_there ? row : 0);
    const int position = divisor.Divide(packed);
    const uint16_t* source =
        q + position * problem.q_row_stride +
        (packed - position * group) * problem.q_head_stride;
    uint8_t* const target = box + row * 128 + ((piece ^ row) % 8) * 16;
    if (is_vectorized) {
      ptx::cp_async_16(ptx::smem_address(target), source, is_there ? 16 : 0);
    } else {
      CopyByElements(source, is_there ? columns : 0, target);
    }
  }
}

__device__ __forceinline__ void AwaitQ() {
  ptx::cp_async_wait_all();
  ptx::fence_proxy_async();
}

}  // namespace attendant::kernels::sm90
