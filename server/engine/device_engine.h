// AttentionEngine over one device: pools, scheduler, executor and threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "server/engine/admission.h"
#include "server/engine/attention_engine.h"
#include "server/engine/attention_executor.h"
#include "server/engine/range_pool.h"
#include "server/regions/region_device.h"

namespace attendant::server {

// What differs from device to device.
struct EngineParts {
  DeviceDescription device;
  std::unique_ptr<HostMemoryPool> host_pool;
  std::unique_ptr<RangePool> device_pool;  // null for a CPU
  std::byte* device_memory = nullptr;      // what device_pool divides
  // Of the device's pool, taken by the executor for itself at start.
  int64_t executor_bytes = 0;
  std::shared_ptr<RegionDevice> region_device;  // null for a CPU
  double default_item_flops = 0;
  double items_in_batch = 1;  // default of max_batch_flops, in items
  double cost_per_byte = 0;   // see QueueLimits
  double assumed_flops_per_second = 1e11;
  // Makes the executor and starts it.
  std::function<absl::StatusOr<std::unique_ptr<AttentionExecutor>>(WorkSource*)>
      start_executor;
};

// Memory that must outlive the executor is kept by start_executor's captures,
// which the engine destroys last. Errors: start_executor's.
absl::StatusOr<std::unique_ptr<AttentionEngine>> MakeDeviceEngine(
    const EngineOptions& options, EngineParts parts);

}  // namespace attendant::server
