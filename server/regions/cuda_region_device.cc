#include "server/regions/cuda_region_device.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/device_guard.h"
#include "kernels/cuda/stream.h"
#include "server/regions/cuda_marks.h"
#include "server/request/errors.h"

namespace attendant::server {
namespace {

using kernels::cuda::DeviceGuard;
using kernels::cuda::LogCudaError;

constexpr char kExportable[] =
    "of memory that another living process on this GPU got from cudaMalloc "
    "(stream-ordered pools cannot be exported so; PyTorch: "
    "expandable_segments:False, or pass VMM memory over the region socket)";

// An error that CUDA reports for a bad argument of the caller's is not ours to
// keep: the next call must not find it.
absl::Status Refused(cudaError_t error, const char* field, const char* bound) {
  (void)cudaGetLastError();
  if (kernels::cuda::IsStickyError(error)) {
    return kernels::cuda::CudaStatus(error, field);
  }
  return InvalidField(field, cudaGetErrorName(error), bound);
}

// An event of another process; null = none was given.
class ReadyEvent {
 public:
  ReadyEvent() = default;
  ReadyEvent(ReadyEvent&& other) noexcept
      : event_(std::exchange(other.event_, nullptr)) {}
  ~ReadyEvent() {
    if (event_ != nullptr) LogCudaError(cudaEventDestroy(event_), "event");
  }
  static absl::StatusOr<ReadyEvent> Open(const std::string& handle) {
    ReadyEvent ready;
    if (handle.empty()) return ready;
    cudaIpcEventHandle_t ipc;
    if (handle.size() != sizeof(ipc)) {
      return InvalidField("ready_event", absl::StrCat(handle.size(), " bytes"),
                          "64 bytes");
    }
    std::memcpy(&ipc, handle.data(), sizeof(ipc));
    if (const cudaError_t error = cudaIpcOpenEventHandle(&ready.event_, ipc);
        error != cudaSuccess) {
      ready.event_ = nullptr;
      return Refused(error, "ready_event",
                     "of an interprocess event of another living process");
    }
    return ready;
  }
  void* get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// One opened handle; regions share it.
struct IpcMapping {
  int device = 0;
  std::byte* base = nullptr;
  int64_t bytes = 0;
  ~IpcMapping() {
    if (base == nullptr) return;
    const DeviceGuard guard(device);
    LogCudaError(cudaIpcCloseMemHandle(base), "cudaIpcCloseMemHandle");
  }
};

class IpcMemory final : public DeviceMemory {
 public:
  IpcMemory(std::shared_ptr<IpcMapping> mapping, int64_t offset,
            ReadyEvent ready)
      : mapping_(std::move(mapping)),
        offset_(offset),
        ready_(std::move(ready)) {}
  std::byte* data() const override { return mapping_->base + offset_; }
  void* ready_event() const override { return ready_.get(); }

 private:
  const std::shared_ptr<IpcMapping> mapping_;
  const int64_t offset_;
  const ReadyEvent ready_;
};

class OwnMemory final : public DeviceMemory {
 public:
  OwnMemory(int device, void* data)
      : device_(device), data_(static_cast<std::byte*>(data)) {}
  ~OwnMemory() override {
    const DeviceGuard guard(device_);
    LogCudaError(cudaFree(data_), "cudaFree");
  }
  std::byte* data() const override { return data_; }

 private:
  const int device_;
  std::byte* const data_;
};

// The driver's calls of virtual memory management, found at run time: a server
// starts without a driver too.
struct VmmApi {
  decltype(&cuMemImportFromShareableHandle) import_handle = nullptr;
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free_address = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemGetAddressRange) address_range = nullptr;

  absl::Status Find() {
    const struct {
      const char* name;
      void* target;
    } entries[] = {{"cuMemImportFromShareableHandle", &import_handle},
                   {"cuMemAddressReserve", &reserve},
                   {"cuMemAddressFree", &free_address},
                   {"cuMemMap", &map},
                   {"cuMemUnmap", &unmap},
                   {"cuMemSetAccess", &set_access},
                   {"cuMemRelease", &release},
                   {"cuMemGetAddressRange", &address_range}};
    for (const auto& [name, target] : entries) {
      cudaDriverEntryPointQueryResult result;
      void* function = nullptr;
      RETURN_IF_CUDA_ERROR(cudaGetDriverEntryPointByVersion(
          name, &function, 12000, cudaEnableDefault, &result));
      if (result != cudaDriverEntryPointSuccess || function == nullptr) {
        return absl::UnimplementedError(
            absl::StrCat("the driver has no ", name));
      }
      std::memcpy(target, &function, sizeof(function));
    }
    return absl::OkStatus();
  }
};

class VmmMemory final : public DeviceMemory {
 public:
  VmmMemory(const VmmApi& api, int device, ReadyEvent ready)
      : api_(api), device_(device), ready_(std::move(ready)) {}
  ~VmmMemory() override {
    const DeviceGuard guard(device_);
    if (mapped_) api_.unmap(address_, size_);
    if (address_ != 0) api_.free_address(address_, size_);
  }

  absl::Status Map(int fd, int64_t bytes) {
    CUmemGenericAllocationHandle handle = 0;
    size_ = static_cast<size_t>(bytes);
    if (api_.import_handle(
            &handle, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != CUDA_SUCCESS) {
      return InvalidField(
          "descriptor", "no handle that can be imported",
          "from cuMemExportToShareableHandle, POSIX_FILE_DESCRIPTOR");
    }
    const bool ok = MapHandle(handle);
    api_.release(handle);  // the mapping keeps the memory
    if (ok) return absl::OkStatus();
    return InvalidField("byte_length", absl::StrCat(bytes),
                        "the size of the exported memory on this server's GPU, "
                        "a multiple of its granularity");
  }

  std::byte* data() const override {
    return reinterpret_cast<std::byte*>(address_);
  }
  void* ready_event() const override { return ready_.get(); }

 private:
  bool MapHandle(CUmemGenericAllocationHandle handle) {
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device_;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (api_.reserve(&address_, size_, 0, 0, 0) != CUDA_SUCCESS) {
      address_ = 0;
      return false;
    }
    mapped_ = api_.map(address_, size_, 0, handle, 0) == CUDA_SUCCESS;
    return mapped_ &&
           api_.set_access(address_, size_, &access, 1) == CUDA_SUCCESS;
  }

  const VmmApi api_;
  const int device_;
  const ReadyEvent ready_;
  CUdeviceptr address_ = 0;
  size_t size_ = 0;
  bool mapped_ = false;
};

class CudaRegionDevice final : public RegionDevice {
 public:
  explicit CudaRegionDevice(int index) : index_(index) {}

  absl::Status Start() {
    const DeviceGuard guard(index_);
    RETURN_IF_ERROR(api_.Find());
    ASSIGN_OR_RETURN(stream_, kernels::cuda::Stream::Create());
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<void>> Register(std::byte* host, int64_t bytes,
                                                 bool writable) override {
    const DeviceGuard guard(index_);
    const unsigned flags =
        cudaHostRegisterPortable | (writable ? 0u : cudaHostRegisterReadOnly);
    if (const cudaError_t error =
            cudaHostRegister(host, static_cast<size_t>(bytes), flags);
        error != cudaSuccess) {
      return Refused(error, "memory", "of pages that the GPU can pin");
    }
    return std::shared_ptr<void>(host, [index = index_](void* pages) {
      const DeviceGuard on_device(index);
      LogCudaError(cudaHostUnregister(pages), "cudaHostUnregister");
    });
  }

  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(
      int64_t bytes) override {
    const DeviceGuard guard(index_);
    void* data = nullptr;
    if (const cudaError_t error = cudaMalloc(&data, static_cast<size_t>(bytes));
        error != cudaSuccess) {
      (void)cudaGetLastError();
      constexpr int64_t kRetryMs = 1000;
      return Overloaded("byte_length", absl::StrCat(bytes),
                        "what the GPU has left", kRetryMs);
    }
    auto memory = std::make_unique<OwnMemory>(index_, data);
    std::lock_guard lock(mu_);
    RETURN_IF_CUDA_ERROR(
        cudaMemsetAsync(data, 0, static_cast<size_t>(bytes), stream_.get()));
    RETURN_IF_ERROR(stream_.Synchronize());
    return memory;
  }

  absl::StatusOr<std::unique_ptr<DeviceMemory>> OpenIpc(
      const std::string& handle, int64_t offset, int64_t bytes,
      const std::string& ready_event) override {
    const DeviceGuard guard(index_);
    ASSIGN_OR_RETURN(std::shared_ptr<IpcMapping> mapping, Open(handle));
    if (offset < 0 || offset % 256 != 0 || offset > mapping->bytes ||
        bytes > mapping->bytes - offset) {
      return InvalidField(
          "byte_offset", absl::StrCat(offset, ", of ", bytes, " bytes,"),
          absl::StrCat("a multiple of 256 within the allocation's ",
                       mapping->bytes, " bytes"));
    }
    ASSIGN_OR_RETURN(ReadyEvent ready, ReadyEvent::Open(ready_event));
    return std::make_unique<IpcMemory>(std::move(mapping), offset,
                                       std::move(ready));
  }

  absl::StatusOr<std::unique_ptr<DeviceMemory>> ImportVmm(
      int fd, int64_t bytes, const std::string& ready_event) override {
    const DeviceGuard guard(index_);
    LogCudaError(cudaFree(nullptr), "cudaFree");  // the context is current
    ASSIGN_OR_RETURN(ReadyEvent ready, ReadyEvent::Open(ready_event));
    auto memory = std::make_unique<VmmMemory>(api_, index_, std::move(ready));
    RETURN_IF_ERROR(memory->Map(fd, bytes));
    return memory;
  }

  absl::StatusOr<std::unique_ptr<DeviceMark>> MarkAfter(
      const std::vector<void*>& events) override {
    return marks_.After(events);
  }

  absl::Status CopyIn(std::byte* device, const std::byte* host,
                      int64_t bytes) override {
    return Copy(device, host, bytes, cudaMemcpyHostToDevice);
  }
  absl::Status CopyOut(std::byte* host, const std::byte* device,
                       int64_t bytes) override {
    return Copy(host, device, bytes, cudaMemcpyDeviceToHost);
  }

 private:
  absl::Status Copy(void* to, const void* from, int64_t bytes,
                    cudaMemcpyKind kind) {
    const DeviceGuard guard(index_);
    std::lock_guard lock(mu_);
    RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes),
                                         kind, stream_.get()));
    return stream_.Synchronize();
  }

  // Opening takes a tenth of a millisecond and more: once a handle.
  absl::StatusOr<std::shared_ptr<IpcMapping>> Open(const std::string& handle) {
    cudaIpcMemHandle_t ipc;
    if (handle.size() != sizeof(ipc)) {
      return InvalidField("handle", absl::StrCat(handle.size(), " bytes"),
                          "64 bytes");
    }
    std::lock_guard lock(mu_);
    std::erase_if(opened_,
                  [](const auto& entry) { return entry.second.expired(); });
    if (auto known = opened_[handle].lock(); known != nullptr) return known;
    std::memcpy(&ipc, handle.data(), sizeof(ipc));
    void* base = nullptr;
    if (const cudaError_t error =
            cudaIpcOpenMemHandle(&base, ipc, cudaIpcMemLazyEnablePeerAccess);
        error != cudaSuccess) {
      return Refused(error, "handle", kExportable);
    }
    auto mapping = std::make_shared<IpcMapping>();
    mapping->device = index_;
    mapping->base = static_cast<std::byte*>(base);
    CUdeviceptr begin = 0;
    size_t size = 0;
    if (api_.address_range(&begin, &size,
                           reinterpret_cast<CUdeviceptr>(base)) !=
        CUDA_SUCCESS) {
      return absl::InternalError("the size of opened memory is not known");
    }
    mapping->bytes = static_cast<int64_t>(size);
    opened_[handle] = mapping;
    return mapping;
  }

  const int index_;
  VmmApi api_;
  CudaMarks marks_{index_};
  std::mutex mu_;  // guards what follows
  kernels::cuda::Stream stream_;
  std::map<std::string, std::weak_ptr<IpcMapping>> opened_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<RegionDevice>> CreateCudaRegionDevice(
    int index) {
  auto device = std::make_shared<CudaRegionDevice>(index);
  RETURN_IF_ERROR(device->Start());
  return device;
}

}  // namespace attendant::server
