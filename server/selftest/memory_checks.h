// The pools that tensors pass through: every byte comes back, and too much is
// refused.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "server/engine/attention_engine.h"
#include "server/request/bounds.h"

namespace attendant::server {

// Fills up to 1 GiB of the host pool (and as much of the device's) with
// requests of one key, whose O is V to the bit: so each byte goes up, through a
// kernel and down again, out of memory of its own. Says how much, and how fast
// up and down. INTERNAL naming the first wrong byte.
absl::StatusOr<std::string> CheckPools(AttentionEngine& engine,
                                       const Bounds& bounds);

// A request that cannot fit now is refused with RESOURCE_EXHAUSTED and a time
// to come back, and when all is answered the pools are empty.
absl::StatusOr<std::string> CheckBackpressure(AttentionEngine& engine,
                                              const Bounds& bounds);

}  // namespace attendant::server
