#include "kernels/cuda/device.h"

#include <cuda_runtime_api.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_status.h"

namespace attendant::kernels::cuda {
namespace {

// As nvidia-smi -L: "GPU-..." of a whole device, "MIG-..." of a part of one.
std::string UuidString(const cudaDeviceProp& prop) {
  const cudaUUID_t& uuid = prop.uuid;
  std::string text = std::string(prop.name).find(" MIG ") != std::string::npos
                         ? "MIG-"
                         : "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    absl::StrAppend(&text, absl::Hex(byte, absl::kZeroPad2));
  }
  return text;
}

std::string WhyNone(cudaError_t error) {
  int driver = 0, runtime = 0;
  if (error == cudaErrorInsufficientDriver &&
      cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0 &&
      cudaRuntimeGetVersion(&runtime) == cudaSuccess) {
    return DriverTooOld(driver, runtime);
  }
  return cudaGetErrorString(error);
}

}  // namespace

std::string DriverTooOld(int driver_version, int needed_version) {
  const auto text = [](int version) {
    return absl::StrCat(version / 1000, ".", version % 1000 / 10);
  };
  return absl::StrCat("the NVIDIA driver is too old: it serves CUDA ",
                      text(driver_version), ", this build needs ",
                      text(needed_version),
                      needed_version >= 13000 ? " (driver 580 or newer)"
                                              : " (driver 525 or newer)");
}

bool IsNamed(const DeviceInfo& info, const std::string& name) {
  if (!name.empty() &&
      name.find_first_not_of("0123456789") == std::string::npos) {
    return name == std::to_string(info.index);
  }
  const auto bare = [](const std::string& uuid) {
    const bool prefixed =
        uuid.rfind("GPU-", 0) == 0 || uuid.rfind("MIG-", 0) == 0;
    return prefixed ? uuid.substr(4) : uuid;
  };
  return bare(name) == bare(info.uuid);
}

int CountDevices(std::string* why_none) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    cudaGetLastError();
    if (why_none != nullptr) *why_none = WhyNone(error);
    return 0;
  }
  if (count == 0 && why_none != nullptr) {
    *why_none = "the driver lists no CUDA device";
  }
  return count;
}

absl::StatusOr<DeviceInfo> DescribeDevice(int index) {
  cudaDeviceProp prop;
  RETURN_IF_CUDA_ERROR(cudaGetDeviceProperties(&prop, index));
  DeviceInfo info;
  info.index = index;
  info.name = prop.name;
  info.uuid = UuidString(prop);
  info.memory_bytes = static_cast<int64_t>(prop.totalGlobalMem);
  info.l2_bytes = prop.l2CacheSize;
  info.properties.compute_capability = 10 * prop.major + prop.minor;
  info.properties.num_sms = prop.multiProcessorCount;
  info.properties.shared_memory_per_block_optin =
      static_cast<int64_t>(prop.sharedMemPerBlockOptin);
  return info;
}

}  // namespace attendant::kernels::cuda
