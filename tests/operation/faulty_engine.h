// The GPU's executor over a device in host memory that fails when told to.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "server/engine/attention_engine.h"

namespace attendant::testing {

// Faults to be met by the next operations of every faulty engine of this
// process. Async-signal-safe.
void FailNextLaunch();
// As an illegal address: nothing can be computed any more.
void BreakDevice();

// Answers are right until a fault is asked for. The engine calls itself a GPU.
absl::StatusOr<std::unique_ptr<server::AttentionEngine>> MakeFaultyEngine(
    const server::EngineOptions& options);

}  // namespace attendant::testing
