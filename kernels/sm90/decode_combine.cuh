// The second kernel of a decode launch: merges strands of several items.
#pragma once

#include <cstdint>

#include "kernels/sm90/decode_fold.cuh"
#include "kernels/sm90/decode_item.cuh"
#include "kernels/sm90/decode_merge.cuh"
#include "kernels/sm90/decode_output.cuh"
#include "kernels/sm90/decode_table.h"
#include "kernels/sm90/ptx/bulk.cuh"
#include "kernels/sm90/ptx/grid.cuh"
#include "kernels/sm90/ptx/mbarrier.cuh"

namespace attendant::kernels::sm90 {

inline constexpr int kCombineBatch = kCombineThreads / 32;  // slots in flight

template <int kD>
struct CombineStorage {
  static constexpr int kRows = CombineRows(kD);
  alignas(16) float o[kCombineBatch * kRows * kD];
  float2 ml[kCombineBatch * kRows];
  uint64_t full;
};

// Merges strands of several items, params.combine_blocks blocks each.
template <typename Shape, typename Element, bool kGrouped>
__global__ void __launch_bounds__(kCombineThreads)
    DecodeCombineKernel(const __grid_constant__ DecodeParams params) {
  extern __shared__ __align__(1024) uint8_t smem[];
  // Strands are numbered through all records.
  const int strand = blockIdx.x / params.combine_blocks;
  DecodeItem item = {};
  int record = 0;
  if constexpr (kGrouped) {
    int begin = 0;
    int end = params.num_sequences;
    while (end - begin > 1) {
      const int middle = (begin + end) / 2;
      (params.global_sequences[middle].first_strand <= strand ? begin : end) =
          middle;
    }
    record = begin;
  }
  SetRecord<kGrouped>(params, record, item);
  const DecodeSequence& sequence = *item.sequence;
  item.unit = sequence.coarse.unit;
  item.slots = sequence.coarse.slots;
  item.first_unit = sequence.coarse.first_unit;
  if (item.slots == 0) return;
  const int pairs = item.problem->num_kv_heads * sequence.row_tiles;
  item.strand = strand - sequence.first_strand;
  const int batch = sequence.by_pairs.Divide(item.strand);
  item.batch = sequence.batch_begin + batch;
  SetRows(item, item.strand - batch * pairs, Shape::kTileQ);
  item.first_slot = sequence.first_slot + item.strand * item.slots;
  constexpr int kD = Shape::kHeadDim;
  using Fold = RowFold<kD>;
  auto& storage = *reinterpret_cast<CombineStorage<kD>*>(smem);
  const int first = blockIdx.x % params.combine_blocks * CombineRows(kD);
  const int rows = min(CombineRows(kD), item.num_rows - first);
  if (rows <= 0) return;
  const StagedShare<kD> share(storage.o, storage.ml, (rows + 1) / 2 * 2);
  const uint32_t full = ptx::smem_address(&storage.full);
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(full, 1);
    ptx::fence_mbarrier_init();
  }
  const int index = threadIdx.x / Fold::kLanes;
  const int row = first + min(index, rows - 1);
  const RowTarget target = TargetOf(item, row);
  Fold fold(item, item.slots, threadIdx.x % Fold::kLanes);
  __syncthreads();
  ptx::grid_wait_for_previous();
  uint32_t phase = 0;
#pragma unroll 1
  for (int begin = 0; begin < item.slots; begin += kCombineBatch, phase ^= 1) {
    const int count = min(kCombineBatch, item.slots - begin);
    const int mine = threadIdx.x / 32;
    const uint32_t bytes = share.rows * kD * 4;
    const uint32_t ml_bytes = share.rows * 8;
    if (threadIdx.x == 0) {
      ptx::mbarrier_arrive_expect_tx(full, count * (bytes + ml_bytes));
    }
    if (threadIdx.x % 32 == 0 && mine < count) {
      const PartialSlot<Shape> slot(params, item.first_slot + begin + mine);
      ptx::bulk_load(ptx::smem_address(share.o_of(mine)), slot.o(first), bytes,
                     full);
      ptx::bulk_load(ptx::smem_address(share.ml_of(mine)), slot.rows(first),
                     ml_bytes, full);
    }
    ptx::mbarrier_wait(full, phase);
    fold.Append(share, count, row, row - first);
    ptx::fence_proxy_async();
    __syncthreads();  // before the next are loaded
  }
  fold.template Store<Element>(params, item, target, index < rows);
}

}  // namespace attendant::kernels::sm90
