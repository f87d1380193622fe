// Every kernel runs, and is checked, before the server calls itself ready.
#pragma once

#include "absl/status/status.h"
#include "server/engine/attention_engine.h"
#include "server/request/bounds.h"

namespace attendant::server {

// Computes small problems with known answers (q = 0, so O is the mean of V) of
// every dtype, head size class and phase that this engine serves. A GPU loads
// its kernels here, not in the first caller's time. Errors: INTERNAL naming the
// problem whose answer is wrong or missing. Blocks.
absl::Status WarmUp(AttentionEngine& engine, const Bounds& bounds);

}  // namespace attendant::server
