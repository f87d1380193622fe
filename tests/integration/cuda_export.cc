#include "tests/integration/cuda_export.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <cstring>

#include "kernels/base/status_macros.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/device.h"

namespace attendant::testing {
namespace {

template <typename Function>
absl::Status Find(const char* name, Function* function) {
  cudaDriverEntryPointQueryResult result;
  void* found = nullptr;
  RETURN_IF_CUDA_ERROR(cudaGetDriverEntryPointByVersion(
      name, &found, 12000, cudaEnableDefault, &result));
  std::memcpy(function, &found, sizeof(found));
  return absl::OkStatus();
}

absl::Status Check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  return absl::InternalError(std::string(what) + " failed: " +
                             std::to_string(static_cast<int>(result)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaExport>> CudaExport::CreateIpc(
    int64_t bytes) {
  std::unique_ptr<CudaExport> memory(new CudaExport);
  void* data = nullptr;
  RETURN_IF_CUDA_ERROR(cudaMalloc(&data, static_cast<size_t>(bytes)));
  memory->data_ = static_cast<std::byte*>(data);
  memory->bytes_ = bytes;
  cudaIpcMemHandle_t handle;
  RETURN_IF_CUDA_ERROR(cudaIpcGetMemHandle(&handle, data));
  memory->handle_.assign(reinterpret_cast<const char*>(&handle),
                         sizeof(handle));
  return memory;
}

absl::StatusOr<std::unique_ptr<CudaExport>> CudaExport::CreateVmm(
    int64_t bytes) {
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemExportToShareableHandle) export_handle = nullptr;
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  RETURN_IF_CUDA_ERROR(cudaFree(nullptr));
  RETURN_IF_ERROR(Find("cuMemCreate", &create));
  RETURN_IF_ERROR(Find("cuMemExportToShareableHandle", &export_handle));
  RETURN_IF_ERROR(Find("cuMemAddressReserve", &reserve));
  RETURN_IF_ERROR(Find("cuMemMap", &map));
  RETURN_IF_ERROR(Find("cuMemSetAccess", &set_access));
  constexpr int64_t kStep = int64_t{2} << 20;
  std::unique_ptr<CudaExport> memory(new CudaExport);
  memory->bytes_ = (bytes + kStep - 1) / kStep * kStep;
  const auto size = static_cast<size_t>(memory->bytes_);
  CUmemAllocationProp property{};
  property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  property.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  property.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle handle = 0;
  RETURN_IF_ERROR(Check(create(&handle, size, &property, 0), "cuMemCreate"));
  RETURN_IF_ERROR(
      Check(export_handle(&memory->descriptor_, handle,
                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            "cuMemExportToShareableHandle"));
  CUdeviceptr address = 0;
  RETURN_IF_ERROR(
      Check(reserve(&address, size, 0, 0, 0), "cuMemAddressReserve"));
  RETURN_IF_ERROR(Check(map(address, size, 0, handle, 0), "cuMemMap"));
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  RETURN_IF_ERROR(
      Check(set_access(address, size, &access, 1), "cuMemSetAccess"));
  memory->data_ = reinterpret_cast<std::byte*>(address);
  return memory;
}

// VMM memory goes with the process.
CudaExport::~CudaExport() {
  if (!handle_.empty())
    kernels::cuda::LogCudaError(cudaFree(data_), "cudaFree");
  if (descriptor_ >= 0) close(descriptor_);
}

std::string CudaUuid() {
  const auto info = kernels::cuda::DescribeDevice(0);
  return info.ok() ? info->uuid : "";
}

}  // namespace attendant::testing
