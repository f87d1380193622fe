// The items of an upload's job, and how much of what each reads is there: they
// start as their input comes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "server/engine/byte_ranges.h"
#include "server/engine/item_copies.h"
#include "server/engine/work_item.h"
#include "server/request/problem_validator.h"

namespace attendant::server {

// One thread at a time.
class UploadParts {
 public:
  // Nothing is there yet but what lies in regions. Both outlive this object.
  UploadParts(const ValidatedRequest& request,
              const std::vector<ItemRange>& ranges);

  // These bytes of the input block are in place now.
  void NoteFilled(ByteRange block_range);

  // Items whose turn it is, each once; `complete`: every byte is in place. The
  // last item waits for the last byte, whether it reads it or not: no answer
  // before everything was sent.
  std::vector<size_t> TakeArrived(bool complete);

 private:
  struct Part {
    std::vector<CopyRect> reads;
    int64_t missing = 0;  // bytes
  };

  void Plan(const ValidatedRequest& request);

  const std::vector<ItemRange>& ranges_;
  std::vector<Part> parts_;  // empty = all items start with the last byte
  std::deque<size_t> arrived_;
  size_t started_ = 0;
};

}  // namespace attendant::server
