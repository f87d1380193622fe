// The producers of the decode kernel for few rows: one warp takes items from
// the launch's queue and keeps the rings of K and V full, across items; another
// brings Q. See decode_few.cuh.
#pragma once

#include <cstdint>

#include "kernels/sm90/decode_few_storage.cuh"
#include "kernels/sm90/decode_item.cuh"
#include "kernels/sm90/decode_load.cuh"
#include "kernels/sm90/ptx/cp_async.cuh"
#include "kernels/sm90/ptx/mbarrier.cuh"
#include "kernels/sm90/ptx/register.cuh"
#include "kernels/sm90/ptx/tma.cuh"

namespace attendant::kernels::sm90 {

template <typename Shape, bool kGrouped, bool kTails>
class DecodeFewProducer {
 public:
  __device__ __forceinline__ DecodeFewProducer(const DecodeParams& params,
                                               DecodeFewStorage<Shape>& storage)
      : params_(params), storage_(storage), lane_(threadIdx.x % 32) {}

  __device__ __forceinline__ void Run() {
    int index = blockIdx.x;
    const bool queues = params_.num_items > static_cast<int>(gridDim.x);
    while (index < params_.num_items) {
      Publish(index);
      const int next = LoadItem(
          FindItem<kGrouped, false, kTails>(params_, index, Shape::kRows),
          queues);
      index = ptx::uniform(__shfl_sync(0xffffffffu, next, 0));
    }
    Publish(-1);
    if (lane_ == 0 && queues &&
        atomicInc(&params_.counters->finished_blocks, gridDim.x - 1) ==
            gridDim.x - 1) {
      params_.counters->next_tile = 0;
    }
  }

 private:
  static constexpr int kAskAhead = 512;

  __device__ __forceinline__ void Publish(int index) {
    ptx::mbarrier_wait(ptx::smem_address(&storage_.item_empty[items_.stage]),
                       items_.phase ^ 1);
    if (lane_ == 0) {
      storage_.item[items_.stage] = index;
      ptx::mbarrier_arrive(
          ptx::smem_address(&storage_.item_full[items_.stage]));
    }
    items_.Advance();
  }

  // Lane 0: the next item's number, asked for kAskAhead keys before the end,
  // not at the start: it would wait for this item while other blocks run out of
  // work. The warp waits for the answer, up to 5 us under load (ptxas gathers
  // a warp's atomics), while what the ring holds is used up.
  __device__ __forceinline__ int LoadItem(const DecodeItem& item, bool queues) {
    if constexpr (kGrouped) {
      ptx::fence_tensormap_acquire(item.maps + kDecodeMapK);
      ptx::fence_tensormap_acquire(item.maps + kDecodeMapV);
    }
    const int kv_begin = item.sequence->kv_begin;
    int row = ptx::uniform(kv_begin + item.key_begin);
    const int end = ptx::uniform(kv_begin + item.key_end);
    const int k_head = ptx::uniform(item.kv_head * item.problem->k.head);
    const int k_batch = ptx::uniform(item.batch * item.problem->k.batch);
    const int v_head = ptx::uniform(item.kv_head * item.problem->v.head);
    const int v_batch = ptx::uniform(item.batch * item.problem->v.batch);
    int next = params_.num_items;
#pragma unroll 1
    for (; row < end; row += Shape::kTileKv) {
      if (queues && lane_ == 0 && row >= end - kAskAhead) {
        next = gridDim.x + atomicAdd(&params_.counters->next_tile, 1);
        queues = false;
      }
      ptx::mbarrier_wait(ptx::smem_address(&storage_.empty[ring_.stage]),
                         ring_.phase ^ 1);
      LoadTile(storage_.k[ring_.stage], &storage_.k_full[ring_.stage],
               item.maps + kDecodeMapK, row, k_head, k_batch);
      LoadTile(storage_.v[ring_.stage], &storage_.v_full[ring_.stage],
               item.maps + kDecodeMapV, row, v_head, v_batch);
      ring_.Advance();
    }
    if (queues && lane_ == 0) {  // no keys
      next = gridDim.x + atomicAdd(&params_.counters->next_tile, 1);
    }
    return next;
  }

  __device__ __forceinline__ void LoadTile(uint8_t* tile, uint64_t* full,
                                           const CUtensorMap* map, int row,
                                           int head, int batch) const {
    const uint32_t barrier = ptx::smem_address(full);
    if (lane_ == 0) {
      ptx::mbarrier_arrive_expect_tx(barrier,
                                     DecodeFewStorage<Shape>::kTileBytes);
    }
    __syncwarp();
#pragma unroll
    for (int box = 0; box < Shape::kHeadDim / 64; ++box) {
      ptx::tma_load_4d_elect(
          ptx::smem_address(tile) + box * Shape::kTileKv * 128, map, barrier,
          64 * box, row, head, batch, ptx::kEvictFirst);
    }
  }

  const DecodeParams& params_;
  DecodeFewStorage<Shape>& storage_;
  const int lane_;
  DecodeRing<Shape::kStages> ring_;
  DecodeRing<2> items_;
};

// Brings each item's Q, a warp of its own: the keys do not wait for it.
template <typename Shape, bool kGrouped, bool kTails>
class DecodeFewQLoader {
 public:
  __device__ __forceinline__ DecodeFewQLoader(const DecodeParams& params,
                                              DecodeFewStorage<Shape>& storage)
      : params_(params), storage_(storage), lane_(threadIdx.x % 32) {}

  __device__ __forceinline__ void Run() const {
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
      const uint32_t full = ptx::smem_address(&storage_.q_full[items.stage]);
      ptx::mbarrier_wait(ptx::smem_address(&storage_.q_empty[items.stage]),
                         items.phase ^ 1);
      if (item.problem->q_is_vectorized) {
        Copy(item, items.stage);
        ptx::cp_async_mbarrier_arrive(full);
      } else {
        CopyByElements(item, items.stage);
        ptx::mbarrier_arrive(full);
      }
      items.Advance();
    }
  }

 private:
  __device__ __forceinline__ static const uint16_t* Row(const DecodeItem& item,
                                                        int row) {
    const DecodeProblem& problem = *item.problem;
    const int64_t position = item.sequence->q_begin + row / problem.group_size;
    const int head =
        item.kv_head * problem.group_size + row % problem.group_size;
    return static_cast<const uint16_t*>(problem.q) +
           item.batch * problem.q_batch_stride +
           position * problem.q_row_stride + head * problem.q_head_stride;
  }

  __device__ __forceinline__ void Copy(const DecodeItem& item,
                                       int stage) const {
    constexpr int kPieces = Shape::kHeadDim / 8;  // of 16 bytes
#pragma unroll 1
    for (int i = lane_; i < Shape::kRows * kPieces; i += 32) {
      const int row = i / kPieces;
      const int column = i % kPieces * 8;
      const bool is_there =
          row < item.num_rows && column < item.problem->head_dim;
      ptx::cp_async_16(ptx::smem_address(&storage_.q[stage][row][column]),
                       Row(item, is_there ? row : 0) + (is_there ? column : 0),
                       is_there ? 16 : 0);
    }
  }

  __device__ __forceinline__ void CopyByElements(const DecodeItem& item,
                                                 int stage) const {
#pragma unroll 1
    for (int i = lane_; i < Shape::kRows * Shape::kHeadDim; i += 32) {
      const int row = i / Shape::kHeadDim;
      const int column = i % Shape::kHeadDim;
      const bool is_there =
          row < item.num_rows && column < item.problem->head_dim;
      storage_.q[stage][row][column] =
          is_there ? Row(item, row)[column] : uint16_t{0};
    }
  }

  const DecodeParams& params_;
  DecodeFewStorage<Shape>& storage_;
  const int lane_;
};

}  // namespace attendant::kernels::sm90
