// Memory of a job: its host blocks and, on a GPU, its device range.
#pragma once

#include <cstddef>
#include <memory>

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

// Takes everything that the job's request needs. RESOURCE_EXHAUSTED with
// `retry_ms` as the hint: what was taken until then goes with the job.
absl::Status TakeJobMemory(const JobPools& pools, int64_t retry_ms,
                           ScheduledJob* job);

// Points job->problem at the memory of the device that computes.
void PlaceProblem(const JobPools& pools, ScheduledJob* job);

// Host memory that nobody needs any more. To be destroyed without a lock: with
// --scrub_host_pool that is a pass over it.
struct SpentMemory {
  HostBlock input;
  std::shared_ptr<HostBlock> output, input_keeper;
};

// Gives back an ended job's device range, and hands out the host memory that it
// still holds (not the caller's output).
SpentMemory TakeSpentMemory(ScheduledJob* job);

}  // namespace attendant::server
