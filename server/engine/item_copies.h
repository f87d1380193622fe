// Which bytes of a request's blocks one work item needs on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/engine/work_item.h"
#include "server/request/problem_validator.h"

namespace attendant::server {

// `height` runs of `width` bytes, `pitch` apart, the first at `offset` of the
// block. A block has the same layout on the host and on the device.
struct CopyRect {
  int64_t offset = 0;
  int64_t pitch = 0;
  int64_t width = 0;
  int64_t height = 1;
  // The first run on the host, if it lies in a region; null = in the block.
  std::byte* host = nullptr;
};

// Bytes in all runs.
int64_t TotalBytes(const std::vector<CopyRect>& rects);

// Parts of the input block; none of a tensor that the kernel finds in a region.
// A whole request is one run, and one for each tensor in a region. Of a cut
// one: the item's part of q, k and v; what several items read (a mask, a tensor
// that is repeated over batch or heads) comes with the `first` item alone, and
// K and V that items cut by rows share with the one that `brings_kv`.
std::vector<CopyRect> InputCopies(const ValidatedRequest& request,
                                  const ItemRange& range, bool first,
                                  bool brings_kv = true);

// Parts of the output block: the item's O and LSE, all stored rows. Items of a
// request cover O and LSE together and nothing else.
std::vector<CopyRect> OutputCopies(const ValidatedRequest& request,
                                   const ItemRange& range);

}  // namespace attendant::server
