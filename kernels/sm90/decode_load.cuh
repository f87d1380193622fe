// Shared memory of a decode block, and what fills it: K and V by the copy
// engine, Q by the consumers. See decode_split_kv.cuh.
#pragma once

#include <cstdint>

#include "kernels/sm90/decode_item.cuh"
#include "kernels/sm90/decode_table.h"
#include "kernels/sm90/ptx/mbarrier.cuh"
#include "kernels/sm90/ptx/tma.cuh"
#include "kernels/sm90/scrub.cuh"

namespace attendant::kernels::sm90 {

template <typename Shape>
struct alignas(1024) DecodeStorage {
  static constexpr int kTileBytes = Shape::kTileKv * Shape::kHeadDim * 2;
  alignas(1024) uint8_t q[Shape::kTileQ * Shape::kHeadDim * 2];
  alignas(1024) uint8_t k[Shape::kStages][kTileBytes];
  alignas(1024) uint8_t v[Shape::kStages][kTileBytes];
  // What each consumer's chunks came to so far.
  float4 kept[Shape::kKeepsInShared ? Shape::kHeadDim / 8 : 1]
             [128 * Shape::kWarpgroups];
  uint64_t k_full[Shape::kStages], k_empty[Shape::kStages];
  uint64_t v_full[Shape::kStages], v_empty[Shape::kStages];
  uint64_t v_arrived[Shape::kStages];  // repair only, see prefill.cuh
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

// ---- Producer: one thread ---------------------------------------------------

template <typename Shape>
__device__ __forceinline__ void LoadTile(uint8_t* tile, uint64_t* full,
                                         uint64_t* empty, uint32_t phase,
                                         const CUtensorMap* map, int row,
                                         int head, int batch) {
  constexpr int kRows = Shape::kBoxRows;
  const uint32_t barrier = ptx::smem_address(full);
  ptx::mbarrier_wait(ptx::smem_address(empty), phase ^ 1);
  ptx::mbarrier_arrive_expect_tx(barrier, DecodeStorage<Shape>::kTileBytes);
#pragma unroll
  for (int i = 0; i < Shape::kHeadDim / 64; ++i) {
#pragma unroll
    for (int first = 0; first < Shape::kTileKv; first += kRows) {
      ptx::tma_load_4d(
          ptx::smem_address(tile) + (i * Shape::kTileKv + first) * 128, map,
          barrier, 64 * i, row + first, head, batch, ptx::kEvictFirst);
    }
  }
}

template <typename Shape, bool kGrouped>
__device__ __forceinline__ void ProduceItem(const DecodeItem& item,
                                            const DecodeParams& params,
                                            DecodeStorage<Shape>& storage) {
  if constexpr (kGrouped) {
    ptx::fence_tensormap_acquire(item.maps + kDecodeMapK);
    ptx::fence_tensormap_acquire(item.maps + kDecodeMapV);
  }
  const int kv_begin = item.sequence->kv_begin;
  const int k_head = item.kv_head * item.problem->k.head;
  const int k_batch = item.batch * item.problem->k.batch;
  const int v_head = item.kv_head * item.problem->v.head;
  const int v_batch = item.batch * item.problem->v.batch;
  const int key_end = item.key_end;
  uint64_t* const v_full =
      params.scrub_exponent == 0 ? storage.v_full : storage.v_arrived;
  DecodeRing<Shape::kStages> ring;
  for (int key = item.key_begin; key < key_end; key += Shape::kTileKv) {
    LoadTile<Shape>(storage.k[ring.stage], &storage.k_full[ring.stage],
                    &storage.k_empty[ring.stage], ring.phase,
                    item.maps + kDecodeMapK, kv_begin + key, k_head, k_batch);
    LoadTile<Shape>(storage.v[ring.stage], &v_full[ring.stage],
                    &storage.v_empty[ring.stage], ring.phase,
                    item.maps + kDecodeMapV, kv_begin + key, v_head, v_batch);
    ring.Advance();
  }
}

template <typename Shape>
__device__ __forceinline__ void ScrubItem(const DecodeItem& item,
                                          uint32_t exponent, int thread,
                                          DecodeStorage<Shape>& storage) {
  DecodeRing<Shape::kStages> ring;
  for (int key = item.key_begin; key < item.key_end; key += Shape::kTileKv) {
    ptx::mbarrier_wait(ptx::smem_address(&storage.v_arrived[ring.stage]),
                       ring.phase);
    ScrubTile(storage.v[ring.stage], DecodeStorage<Shape>::kTileBytes, exponent,
              thread);
    ptx::fence_proxy_async();
    ptx::named_barrier_sync(kScrubbersBarrier, kScrubThreads);
    if (thread == 0) {
      ptx::mbarrier_arrive(ptx::smem_address(&storage.v_full[ring.stage]));
    }
    ring.Advance();
  }
}

// ---- Q: all consumer threads, into 128-byte swizzle -------------------------

template <typename Shape>
__device__ __forceinline__ void LoadQ(const DecodeItem& item,
                                      DecodeStorage<Shape>& storage) {
  constexpr int kPieces = Shape::kHeadDim / 8;  // of 16 bytes
  const DecodeProblem& problem = *item.problem;
  const uint16_t* q = static_cast<const uint16_t*>(problem.q) +
                      item.batch * problem.q_batch_stride;
  for (int i = threadIdx.x; i < Shape::kTileQ * kPieces;
       i += 128 * Shape::kWarpgroups) {
    const int row = i / kPieces;
    const int piece = i % kPieces;
    uint4 value = make_uint4(0, 0, 0, 0);
    const int columns = problem.head_dim - 8 * piece;
    if (row < item.num_rows && columns > 0) {
      const int packed = item.row0 + row;
      const int64_t position =
          item.sequence->q_begin + packed / problem.group_size;
      const int head =
          item.kv_head * problem.group_size + packed % problem.group_size;
      const uint16_t* source = q + position * problem.q_row_stride +
                               head * problem.q_head_stride + 8 * piece;
      if (problem.q_is_vectorized) {
        value = __ldg(reinterpret_cast<const uint4*>(source));
      } else {
        uint16_t* elements = reinterpret_cast<uint16_t*>(&value);
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          elements[e] = e < columns ? source[e] : uint16_t{0};
        }
      }
    }
    uint8_t* box = storage.q + piece / 8 * (Shape::kTileQ * 128);
    *reinterpret_cast<uint4*>(box + row * 128 + ((piece ^ row) % 8) * 16) =
        value;
  }
  ptx::fence_proxy_async();
}

}  // namespace attendant::kernels::sm90
