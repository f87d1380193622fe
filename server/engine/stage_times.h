// A job's stage intervals -> its exposed and its busy times.
#pragma once

#include <span>

#include "server/engine/attention_engine.h"

namespace attendant::server {

// What one work item of a job did from `begin` to `end`.
struct StageInterval {
  Stage stage;  // kUpload, kKernel or kDownload
  Clock::time_point begin, end;
};

// Fills exposed_ns and busy_ns of queue, upload, kernel and download for a job
// that was in the engine from `submitted` to `done`. Exposed: every moment is
// given to one stage, the furthest that matters to the caller (kernel, then
// download, then upload, else queue), so that they add up to the time exactly.
// Busy: how long at least one item was in the stage. Of a job whose last byte
// came at `input_complete` only what follows is exposed (the rest is
// receiving). Fills extents too.
void FillStageTimes(Clock::time_point submitted,
                    Clock::time_point input_complete, Clock::time_point done,
                    std::span<const StageInterval> intervals,
                    JobResult* result);
void FillStageTimes(Clock::time_point submitted, Clock::time_point done,
                    std::span<const StageInterval> intervals,
                    JobResult* result);

}  // namespace attendant::server
