#include "server/engine/attention_engine.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/thread_pool.h"
#include "server/engine/cpu_executor.h"
#include "server/engine/device_engine.h"
#include "server/engine/host_memory_pool.h"
#include "server/log/log.h"
#ifdef ATTENDANT_WITH_CUDA
#include "server/engine/cuda_engine.h"
#endif

namespace attendant::server {
namespace {

// What one core of today does in a second at least, for the size of items.
constexpr double kCoreFlopsPerSecond = 4e10;
constexpr double kItemSeconds = 0.05;
// A core moves some 10 GB/s.
constexpr double kCpuFlopsPerByte = 4;

int CpuThreads(const EngineOptions& options) {
  if (options.cpu_threads > 0) return options.cpu_threads;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

DeviceDescription DescribeCpu(int threads) {
  DeviceDescription device;
  device.uuid = "CPU";
  device.name = "CPU";
  device.memory_bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) *
                        static_cast<int64_t>(sysconf(_SC_PAGESIZE));
  device.instruction_set = std::string(kernels::cpu::ActiveSimdKernels().name);
  device.properties.num_sms = threads;
  return device;
}

absl::StatusOr<EngineParts> MakeCpuParts(const EngineOptions& options) {
  const int threads = CpuThreads(options);
  EngineParts parts;
  parts.device = DescribeCpu(threads);
  ASSIGN_OR_RETURN(
      parts.host_pool,
      CreatePlainHostPool(options.host_pool_bytes, options.scrub_host_pool));
  parts.assumed_flops_per_second = kCoreFlopsPerSecond * threads;
  parts.default_item_flops = parts.assumed_flops_per_second * kItemSeconds;
  parts.cost_per_byte = kCpuFlopsPerByte;
  const auto pool = std::make_shared<kernels::cpu::ThreadPool>(threads);
  parts.start_executor =
      [pool, properties = parts.device.properties](
          WorkSource* source) -> std::unique_ptr<AttentionExecutor> {
    auto executor = std::make_unique<CpuExecutor>(
        properties, source, pool.get(), [] { return Clock::now(); });
    executor->Start();
    return executor;
  };
  return parts;
}

absl::StatusOr<DeviceDescription> ChooseGpu(const EngineOptions& options) {
#ifdef ATTENDANT_WITH_CUDA
  return ChooseCudaDevice(options);
#else
  (void)options;
  return absl::FailedPreconditionError(
      "this build has no GPU kernels (it was built without nvcc)");
#endif
}

absl::StatusOr<EngineParts> MakeGpuParts(const EngineOptions& options,
                                         const DeviceDescription& device) {
#ifdef ATTENDANT_WITH_CUDA
  return MakeCudaParts(options, device);
#else
  (void)options, (void)device;
  return absl::InternalError("no GPU to make the engine for");
#endif
}

void LogChoice(const DeviceDescription& device, const std::string& why) {
  const std::string what =
      device.is_cuda ? absl::StrCat("GPU ", device.index, " (", device.name,
                                    ", ", device.uuid, ")")
                     : absl::StrCat("the CPU (", device.properties.num_sms,
                                    " threads, ", device.instruction_set, ")");
  Log(LogLevel::kInfo, "computing on " + what, {{"why", why}});
}

}  // namespace

absl::StatusOr<std::unique_ptr<AttentionEngine>> CreateEngine(
    const EngineOptions& options) {
  using Backend = EngineOptions::Backend;
  std::string why = "asked for by name";
  if (options.backend != Backend::kCpu) {
    const auto gpu = ChooseGpu(options);
    if (gpu.ok()) {
      if (options.backend == Backend::kAuto) why = "it is the first usable GPU";
      if (!options.cuda_device.empty()) why = "asked for by name";
      ASSIGN_OR_RETURN(EngineParts parts, MakeGpuParts(options, *gpu));
      LogChoice(*gpu, why);
      return MakeDeviceEngine(options, std::move(parts));
    }
    // A GPU asked for by name is never replaced in silence.
    if (options.backend == Backend::kCuda || !options.cuda_device.empty()) {
      return gpu.status();
    }
    why = std::string(gpu.status().message());
  }
  ASSIGN_OR_RETURN(EngineParts parts, MakeCpuParts(options));
  LogChoice(parts.device, why);
  return MakeDeviceEngine(options, std::move(parts));
}

}  // namespace attendant::server
