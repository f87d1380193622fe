// attendant_gpu_*: what NVML says of the GPU, if its library is there.
#pragma once

#include <string>
#include <vector>

#include "prometheus/metric_family.h"

namespace attendant::server {

// Loads NVML at run time. Without it, or where NVML refuses a
// value (MIG, containers), the metric is missing, never zero. Thread-safe.
class GpuMetrics {
 public:
  // `uuid` of the GPU ("GPU-..." or "MIG-..."); empty = none.
  explicit GpuMetrics(const std::string& uuid,
                      const std::string& library = "libnvidia-ml.so.1");
  ~GpuMetrics();
  GpuMetrics(const GpuMetrics&) = delete;
  GpuMetrics& operator=(const GpuMetrics&) = delete;

  bool available() const { return device_ != nullptr; }
  void Append(const std::string& device_label,
              std::vector<prometheus::MetricFamily>* families) const;

 private:
  void* Symbol(const char* name) const;

  void* library_ = nullptr;  // dlopen handle
  void* device_ = nullptr;   // nvmlDevice_t
};

}  // namespace attendant::server
