// Which CUDA devices there are, and what planning must know of one.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/attention.h"

namespace attendant::kernels::cuda {

// Usable devices: 0 on a machine without a driver or a GPU, or when the driver
// is too old (then `why_none`, if given, gets the reason). Never fails.
int CountDevices(std::string* why_none = nullptr);

struct DeviceInfo {
  int index = 0;
  std::string name;
  std::string
      uuid;  // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", as nvidia-smi
  int64_t memory_bytes = 0;  // in all, whoever uses it
  int64_t l2_bytes = 0;
  DeviceProperties properties;
};

absl::StatusOr<DeviceInfo> DescribeDevice(int index);

}  // namespace attendant::kernels::cuda
