#include "server/engine/job_memory.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/request/errors.h"

namespace attendant::server {
namespace {

absl::Status NoRoom(const char* pool, int64_t used, int64_t capacity,
                    int64_t bytes, int64_t retry_ms) {
  return Overloaded(
      pool, absl::StrCat(used, " bytes in use"),
      absl::StrCat("room for ", bytes, " of ", capacity, " bytes"), retry_ms);
}

}  // namespace

absl::Status TakeJobMemory(const JobPools& pools, int64_t retry_ms,
                           ScheduledJob* job) {
  const ValidatedRequest& request = *job->request;
  auto input = pools.host->Allocate(request.host_input_bytes());
  auto output = pools.host->Allocate(request.host_output_bytes());
  // The job's at once, so that what was taken in vain goes when it goes.
  if (input.ok()) job->input = *std::move(input);
  if (output.ok()) {
    job->output = std::make_shared<HostBlock>(*std::move(output));
  }
  if (!input.ok() || !output.ok()) {
    return NoRoom("host memory pool", pools.host->used_bytes(),
                  pools.host->capacity_bytes(), job->bytes, retry_ms);
  }
  if (pools.device != nullptr && job->bytes > 0) {
    const auto offset = pools.device->Allocate(job->bytes);
    if (!offset.has_value()) {
      return NoRoom("device memory pool", pools.device->used_bytes(),
                    pools.device->capacity_bytes(), job->bytes, retry_ms);
    }
    constexpr int64_t kStep = RangePool::kAlignment;
    job->device_range = RangeHold(pools.device, *offset, job->bytes);
    job->device_output_offset =
        *offset + (request.input_bytes + kStep - 1) / kStep * kStep;
  }
  job->input_memory = job->input.data();
  job->output_memory = job->output->data();
  return absl::OkStatus();
}

void PlaceProblem(const JobPools& pools, ScheduledJob* job) {
  std::byte* input = job->input_memory;
  std::byte* output = job->output_memory;
  if (pools.device != nullptr) {
    input = pools.device_memory + job->device_range.offset();
    output = pools.device_memory + job->device_output_offset;
  }
  job->problem = Placed(*job->request, input, output);
}

SpentMemory TakeSpentMemory(ScheduledJob* job) {
  job->device_range = RangeHold();
  return {std::move(job->held_input), std::move(job->held_output),
          std::move(job->input_keeper)};
}

}  // namespace attendant::server
