#include "server/monitoring/gpu_metrics.h"

#include <dlfcn.h>

#include "server/monitoring/metric_families.h"

namespace attendant::server {
namespace {

// NVML's ABI, as far as it is used here (0 is NVML_SUCCESS).
using InitFn = int (*)();
using ShutdownFn = int (*)();
using HandleFn = int (*)(const char* uuid, void** device);
using UintFn = int (*)(void* device, unsigned* value);
using ClockFn = int (*)(void* device, int clock, unsigned* mhz);
struct Utilization {
  unsigned gpu;
  unsigned memory;
};
using UtilizationFn = int (*)(void* device, Utilization* value);
constexpr int kClockSm = 1, kClockMemory = 2;

}  // namespace

void* GpuMetrics::Symbol(const char* name) const {
  return dlsym(library_, name);
}

GpuMetrics::GpuMetrics(const std::string& uuid, const std::string& library) {
  if (uuid.empty()) return;
  library_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) return;
  const auto init = reinterpret_cast<InitFn>(Symbol("nvmlInit_v2"));
  const auto handle =
      reinterpret_cast<HandleFn>(Symbol("nvmlDeviceGetHandleByUUID"));
  if (init == nullptr || handle == nullptr || init() != 0) return;
  if (handle(uuid.c_str(), &device_) != 0) device_ = nullptr;
}

GpuMetrics::~GpuMetrics() {
  if (library_ == nullptr) return;
  const auto shutdown = reinterpret_cast<ShutdownFn>(Symbol("nvmlShutdown"));
  if (shutdown != nullptr) shutdown();
  dlclose(library_);
}

void GpuMetrics::Append(const std::string& device_label,
                        std::vector<prometheus::MetricFamily>* families) const {
  if (device_ == nullptr) return;
  const MetricLabels labels = {{"device", device_label}};
  if (const auto get = reinterpret_cast<UtilizationFn>(
          Symbol("nvmlDeviceGetUtilizationRates"))) {
    if (Utilization use{}; get(device_, &use) == 0) {
      AddGauge(families, "attendant_gpu_utilization_ratio",
               "Share of the last period in which a kernel ran.",
               use.gpu / 100.0, labels);
    }
  }
  if (const auto get =
          reinterpret_cast<UintFn>(Symbol("nvmlDeviceGetPowerUsage"))) {
    if (unsigned milliwatts = 0; get(device_, &milliwatts) == 0) {
      AddGauge(families, "attendant_gpu_power_watts", "Power drawn.",
               milliwatts / 1000.0, labels);
    }
  }
  const auto clock =
      reinterpret_cast<ClockFn>(Symbol("nvmlDeviceGetClockInfo"));
  if (clock == nullptr) return;
  const std::pair<const char*, int> clocks[] = {{"sm", kClockSm},
                                                {"memory", kClockMemory}};
  prometheus::MetricFamily family;
  family.name = "attendant_gpu_clock_hertz";
  family.help = "Current clock.";
  family.type = prometheus::MetricType::Gauge;
  for (const auto& [name, id] : clocks) {
    if (unsigned mhz = 0; clock(device_, id, &mhz) == 0) {
      AddSample(&family, {{"device", device_label}, {"clock", name}},
                mhz * 1e6);
    }
  }
  if (!family.metric.empty()) families->push_back(std::move(family));
}

}  // namespace attendant::server
