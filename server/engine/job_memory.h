// Memory of a job: its host blocks and, on a GPU, its device range.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "server/engine/range_pool.h"
#include "server/engine/scheduled_job.h"

namespace attendant::server {

struct JobPools {
  HostMemoryPool* host = nullptr;
  // Both null unless jobs need device memory of their own.
  RangePool* device = nullptr;
  std::byte* device_memory = nullptr;
};

// Takes everything that the job's request needs, or nothing. RESOURCE_EXHAUSTED
// with `retry_ms` as the hint.
absl::Status TakeJobMemory(const JobPools& pools, int64_t retry_ms,
                           ScheduledJob* job);

// Points job->problem at the memory of the device that computes.
void PlaceProblem(const JobPools& pools, ScheduledJob* job);

// Gives back what an ended job still holds (not the caller's output).
void ReleaseJobMemory(ScheduledJob* job);

}  // namespace attendant::server
