#include "kernels/cuda/device.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_status.h"

namespace attendant::kernels::cuda {
namespace {

std::string UuidString(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    absl::StrAppend(&text, absl::Hex(byte, absl::kZeroPad2));
  }
  return text;
}

}  // namespace

int CountDevices(std::string* why_none) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    cudaGetLastError();
    if (why_none != nullptr) *why_none = cudaGetErrorString(error);
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
  info.uuid = UuidString(prop.uuid);
  info.memory_bytes = static_cast<int64_t>(prop.totalGlobalMem);
  info.l2_bytes = prop.l2CacheSize;
  info.properties.compute_capability = 10 * prop.major + prop.minor;
  info.properties.num_sms = prop.multiProcessorCount;
  info.properties.shared_memory_per_block_optin =
      static_cast<int64_t>(prop.sharedMemPerBlockOptin);
  return info;
}

}  // namespace attendant::kernels::cuda
