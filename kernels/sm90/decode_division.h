// How a sequence record's strands are divided into items, and what these store.
// Host-only.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/sm90/decode_plan.h"

namespace attendant::kernels::sm90 {

inline int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Of how many chunks items may be, and what they cost in the time that a key's
// K and V take: an item beside its keys, and a slot.
struct DecodeLevels {
  std::span<const int64_t> units;  // the largest first, 1 last
  int64_t item_keys;
  int64_t slot_keys;
  bool evens_out;       // few rows: the last items of many are shorter
  bool may_have_tails;  // few rows, see DecodeTails
};

// Sets the record's segments, tails, slots and strands and adds them to
// `group`: items of the level that takes the least time on `num_blocks` blocks
// that have the record to themselves. `heads`: KV heads.
void DivideRecord(DecodeGroup& group, DecodeSequence& record, int64_t heads,
                  int64_t num_blocks, const DecodeLevels& levels);

}  // namespace attendant::kernels::sm90
