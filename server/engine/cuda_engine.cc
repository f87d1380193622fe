#include "server/engine/cuda_engine.h"

#include <cuda_runtime_api.h>
#include <sys/prctl.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/buffer.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/device_guard.h"
#include "server/engine/cuda_executor.h"
#include "server/engine/cuda_port.h"
#include "server/engine/host_memory_pool.h"
#include "server/engine/numa_memory.h"
#include "server/log/log.h"
#include "server/regions/cuda_region_device.h"

namespace attendant::server {
namespace {

using kernels::cuda::DeviceBuffer;
using kernels::cuda::DeviceInfo;
using kernels::cuda::PinnedBuffer;

// Below Ampere there is no kernel.
constexpr int kLeastComputeCapability = 80;
constexpr int64_t kHostScratchBytes = int64_t{32} << 20;
constexpr double kItemFlops = 1e12;
constexpr double kItemsInBatch = 4;
// Of the free device memory, at most so much becomes the pool.
constexpr double kMostOfFreeMemory = 0.8;
constexpr double kAssumedFlopsPerSecond = 2e14;
// As long as the queues side by side gain less than their hand-overs cost, some
// 10 us each.
constexpr int64_t kAtOnceBytes = int64_t{4} << 20;
// Longer than a caller in a loop needs to come again with some megabytes.
constexpr std::chrono::microseconds kWatchful{1200};
// A byte over PCIe at 50 GB/s.
constexpr double kFlopsPerByte = 4000;

// What is asked for, or less where the device has not that much free.
absl::StatusOr<int64_t> PoolBytes(const EngineOptions& options) {
  size_t free = 0, total = 0;
  RETURN_IF_CUDA_ERROR(cudaMemGetInfo(&free, &total));
  const auto most =
      static_cast<int64_t>(static_cast<double>(free) * kMostOfFreeMemory);
  if (options.device_pool_bytes <= most) return options.device_pool_bytes;
  Log(LogLevel::kWarning, "the device's pool is smaller than asked for",
      {{"free_bytes", free},
       {"pool_bytes", most},
       {"asked_bytes", options.device_pool_bytes}});
  return most;
}

// An eighth of the pool is workspace and descriptors.
int64_t ScratchBytes(int64_t pool_bytes) {
  constexpr int64_t kAlignment = 256;
  return pool_bytes / 8 / kAlignment * kAlignment;
}

// 0 where the rate of the tensor cores is not known here.
double PeakFlops(const DeviceInfo& info) {
  // Dense bf16 with fp32 sums, operations a cycle and multiprocessor.
  double per_cycle = 0;
  if (info.properties.compute_capability == 80) per_cycle = 2048;
  if (info.properties.compute_capability == 90) per_cycle = 4096;
  int khz = 0;
  if (cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, info.index) !=
      cudaSuccess) {
    cudaGetLastError();  // an unknown clock is no error of the device
    return 0;
  }
  return per_cycle * khz * 1e3 * info.properties.num_sms;
}

DeviceDescription Describe(const DeviceInfo& info) {
  DeviceDescription device;
  device.is_cuda = true;
  device.index = info.index;
  device.uuid = info.uuid;
  device.name = info.name;
  device.memory_bytes = info.memory_bytes;
  device.properties = info.properties;
  device.peak_flops = PeakFlops(info);
  return device;
}

int NumaNodeOf(int device) {
  char bus_id[32] = {};
  if (cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), device) != cudaSuccess) {
    cudaGetLastError();
    return -1;
  }
  return NumaNodeOfPciDevice(bus_id);
}

// What the executor uses; lives as long as the executor does.
struct CudaMemory {
  int device = 0;
  DeviceBuffer device_memory;
  PinnedBuffer host_scratch;
  std::unique_ptr<CudaPort> port;

  ~CudaMemory() {
    const kernels::cuda::DeviceGuard guard(device);
    port.reset();
    device_memory = DeviceBuffer();
    host_scratch = PinnedBuffer();
  }
};

absl::StatusOr<std::unique_ptr<HostMemoryPool>> CreatePinnedHostPool(
    int64_t bytes, bool scrub) {
  ASSIGN_OR_RETURN(PinnedBuffer buffer, PinnedBuffer::Create(bytes));
  auto owner = std::make_shared<PinnedBuffer>(std::move(buffer));
  std::byte* memory = owner->data();
  return MakeHostPool(memory, bytes, std::move(owner), scrub);
}

CudaExecutor::Options ExecutorOptions(const DeviceDescription& device,
                                      const CudaMemory& memory,
                                      std::chrono::seconds stuck_after) {
  CudaExecutor::Options executor;
  executor.device = device.properties;
  executor.stuck_after = stuck_after;
  executor.at_once_bytes = kAtOnceBytes;
  executor.watchful = kWatchful;
  executor.device_scratch_bytes = ScratchBytes(memory.device_memory.bytes());
  // Behind what the pool divides.
  executor.device_scratch = memory.device_memory.data() +
                            memory.device_memory.bytes() -
                            executor.device_scratch_bytes;
  executor.host_scratch = memory.host_scratch.data();
  executor.host_scratch_bytes = memory.host_scratch.bytes();
  executor.device_memory = memory.device_memory.data();
  return executor;
}

}  // namespace

absl::StatusOr<DeviceDescription> ChooseCudaDevice(
    const EngineOptions& options) {
  std::string why_none;
  const int count = kernels::cuda::CountDevices(&why_none);
  if (count == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("there is no CUDA device: ", why_none));
  }
  std::string passed_over;
  for (int index = 0; index < count; ++index) {
    ASSIGN_OR_RETURN(const DeviceInfo info,
                     kernels::cuda::DescribeDevice(index));
    if (!options.cuda_device.empty() &&
        !kernels::cuda::IsNamed(info, options.cuda_device)) {
      absl::StrAppend(&passed_over, " ", index, " (", info.uuid, ")");
      continue;
    }
    const int capability = info.properties.compute_capability;
    if (capability >= kLeastComputeCapability) return Describe(info);
    absl::StrAppend(&passed_over, " ", index, " (compute capability ",
                    capability, ", needs ", kLeastComputeCapability, ")");
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "no usable CUDA device", options.cuda_device.empty() ? "" : " named ",
      options.cuda_device, " among:", passed_over));
}

absl::StatusOr<EngineParts> MakeCudaParts(const EngineOptions& options,
                                          const DeviceDescription& device) {
  const kernels::cuda::DeviceGuard guard(device.index);
  auto memory = std::make_shared<CudaMemory>();
  memory->device = device.index;
  ASSIGN_OR_RETURN(memory->port, CudaPort::Create());
  ASSIGN_OR_RETURN(const int64_t pool_bytes, PoolBytes(options));
  ASSIGN_OR_RETURN(memory->device_memory, DeviceBuffer::Create(pool_bytes));
  const int node = NumaNodeOf(device.index);
  const PreferNumaNode prefer(node);
  if (prefer.active()) {
    Log(LogLevel::kInfo, "host memory comes from the GPU's NUMA node",
        {{"node", node}});
  }
  ASSIGN_OR_RETURN(memory->host_scratch,
                   PinnedBuffer::Create(kHostScratchBytes));
  const CudaExecutor::Options executor =
      ExecutorOptions(device, *memory, options.stuck_after);
  if (executor.device_scratch_bytes <
      (DevicePort::kNumSlots + 1) * LaunchScratch::kControlBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("device_pool_bytes is ", options.device_pool_bytes,
                     ", must be at least ",
                     8 * (DevicePort::kNumSlots + int64_t{1}) *
                         LaunchScratch::kControlBytes));
  }
  EngineParts parts;
  parts.device = device;
  ASSIGN_OR_RETURN(
      parts.host_pool,
      CreatePinnedHostPool(options.host_pool_bytes, options.scrub_host_pool));
  parts.device_memory = memory->device_memory.data();
  parts.device_pool =
      std::make_unique<RangePool>(pool_bytes - executor.device_scratch_bytes);
  ASSIGN_OR_RETURN(parts.region_device, CreateCudaRegionDevice(device.index));
  parts.executor_bytes = executor.device_scratch_bytes;
  parts.default_item_flops = kItemFlops;
  parts.items_in_batch = kItemsInBatch;
  parts.cost_per_byte = kFlopsPerByte;
  parts.assumed_flops_per_second = kAssumedFlopsPerSecond;
  parts.start_executor = [memory, executor](WorkSource* source)
      -> absl::StatusOr<std::unique_ptr<AttentionExecutor>> {
    const kernels::cuda::DeviceGuard on_device(memory->device);
    auto made =
        std::make_unique<CudaExecutor>(executor, source, memory->port.get());
    RETURN_IF_ERROR(made->Prepare());
    made->Start([index = memory->device] {
      // Its pauses of 20 us would else take 70.
      prctl(PR_SET_TIMERSLACK, 1000);
      kernels::cuda::LogCudaError(cudaSetDevice(index), "cudaSetDevice");
    });
    return made;
  };
  return parts;
}

}  // namespace attendant::server
