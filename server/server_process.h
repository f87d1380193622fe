// The process around a server: flags, wiring, warm-up, signals, drain.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/engine/attention_engine.h"

namespace attendant::server {

using EngineFactory =
    std::function<absl::StatusOr<std::unique_ptr<AttentionEngine>>(
        const EngineOptions&)>;

// Serves until SIGTERM, SIGINT or a device that failed; then ends the process
// with one of README.md's exit codes, or returns it if nothing was started.
// Called once, by main and before any other thread. `arguments` without the
// program's name.
int RunServerProcess(const std::vector<std::string>& arguments,
                     const EngineFactory& make_engine);

}  // namespace attendant::server
