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
  // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", as nvidia-smi; "MIG-..." of a
  // part of a GPU.
  std::string uuid;
  int64_t memory_bytes = 0;  // in all, whoever uses it
  int64_t l2_bytes = 0;
  DeviceProperties properties;
};

absl::StatusOr<DeviceInfo> DescribeDevice(int index);

// Whether a person who writes `name` means this device: its index, or its UUID
// with or without "GPU-" or "MIG-" (a container may be given a MIG part by
// either).
bool IsNamed(const DeviceInfo& info, const std::string& name);

// What is wrong, in words, when the driver serves an older CUDA than this build
// needs. Versions as CUDA counts them, 12040 for 12.4.
std::string DriverTooOld(int driver_version, int needed_version);

}  // namespace attendant::kernels::cuda
