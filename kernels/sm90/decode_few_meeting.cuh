// Where blocks that share a strand, or an item and its tail, meet: the last to
// come has what the others stored and goes on with it. See decode_few.cuh.
#pragma once

#include <cstdint>

#include "kernels/sm90/decode_few_fold.cuh"
#include "kernels/sm90/decode_few_storage.cuh"
#include "kernels/sm90/decode_item.cuh"
#include "kernels/sm90/ptx/atomic.cuh"
#include "kernels/sm90/ptx/mbarrier.cuh"

namespace attendant::kernels::sm90 {

inline constexpr uint32_t kFewConsumersBarrier = 1;

template <typename Shape>
__device__ __forceinline__ void SyncFewConsumers() {
  ptx::named_barrier_sync(kFewConsumersBarrier, Shape::kConsumers);
}

// Called by all consumers of a block; `word` is an index of the launch's
// arrivals, which whoever comes last leaves at zero.
template <typename Shape>
class FewMeeting {
 public:
  __device__ __forceinline__ FewMeeting(const DecodeParams& params,
                                        DecodeFewStorage<Shape>& storage)
      : params(params), storage_(storage) {}

  // Announces what the block stored; true if it is the last of `parts` to do
  // so, and then sees what the others stored.
  __device__ __forceinline__ bool ArrivesLast(int word, int parts) const {
    SyncFewConsumers<Shape>();
    if (threadIdx.x == 0) {
      uint32_t* const count = params.arrivals + word;
      const bool is_last =
          ptx::atomic_add_acq_rel(count, 1) == static_cast<uint32_t>(parts - 1);
      if (is_last) *count = 0;
      storage_.is_last = is_last;
    }
    SyncFewConsumers<Shape>();
    return storage_.is_last;
  }

  // As ArrivesLast, but if others are still to come nothing is announced. The
  // block has met at a barrier since it last asked (at a chunk's end,
  // PutWarps).
  __device__ __forceinline__ bool IsLast(int word, int parts) const {
    if (threadIdx.x == 0) {
      uint32_t* const count = params.arrivals + word;
      const bool is_last =
          ptx::load_acquire(count) == static_cast<uint32_t>(parts - 1);
      if (is_last) *count = 0;
      storage_.is_last = is_last;
    }
    SyncFewConsumers<Shape>();
    return storage_.is_last;
  }

  const DecodeParams& params;

 private:
  DecodeFewStorage<Shape>& storage_;
};

// An item meets its tail, whichever `item` is. True in the block that comes
// last, as a rule the item's, which then needs not store what it holds: there
// `folds` becomes what the two came to, in the order of an item that was not
// cut.
template <typename Shape, int kVectors>
__device__ __forceinline__ bool MeetTail(const FewMeeting<Shape>& meeting,
                                         const DecodeItem& item,
                                         FewFold (&folds)[kVectors]) {
  using Share = FewShare<Shape>;
  const DecodeParams& params = meeting.params;
  const int column = Share::Column();
  if (item.is_tail) {
    if (!meeting.ArrivesLast(item.tail_word, 2)) return false;
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (Share::Row(k) >= item.num_rows) continue;
      folds[k] = LoadFold<Shape>(params, item.tail_slot, Share::Row(k), column);
    }
  } else if (!meeting.IsLast(item.tail_word, 2)) {
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (Share::Row(k) >= item.num_rows) continue;
      StoreFold<Shape>(params, item.tail_slot, folds[k], Share::Row(k), column);
    }
    if (!meeting.ArrivesLast(item.tail_word, 2)) return false;
  }
  const int first = item.is_tail ? item.chunk_begin : item.chunk_end;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    if (Share::Row(k) >= item.num_rows) continue;
    for (int i = 0; i < item.tail_chunks; ++i) {
      const FewSlot<Shape> slot(params,
                                item.tail_slot + DecodeTails::kKept + i);
      folds[k].Begin(first + i);
      folds[k].octet.Append(slot.Load(Share::Row(k), column));
    }
  }
  return true;
}

}  // namespace attendant::kernels::sm90
