// The functions of the CUDA driver (libcuda.so.1), found at run time: a program
// that has them in its way starts on a machine without a GPU too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace attendant::client::cuda {

// As cuda.h has them.
using Result = int;  // CUresult; 0 = success
using DevicePointer = unsigned long long;
using Context = void*;
using Stream = void*;
using Event = void*;
using AllocationHandle = unsigned long long;

struct IpcHandle {
  char bytes[64];
};
struct Uuid {
  char bytes[16];
};
struct Location {
  int type = 1;  // CU_MEM_LOCATION_TYPE_DEVICE
  int id = 0;
};
struct AllocationProperties {  // CUmemAllocationProp
  int type = 1;                // CU_MEM_ALLOCATION_TYPE_PINNED
  int handle_types = 1;        // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
  Location location;
  void* win32 = nullptr;
  unsigned char flags[8] = {};
};
struct AccessDescription {  // CUmemAccessDesc
  Location location;
  int flags = 3;  // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
};

// CUpointer_attribute
enum PointerAttribute : int {
  kMemoryType = 2,  // unsigned: 0 = none of CUDA's, 1 = host, 2 = device
  kBufferId = 7,    // uint64_t
  kIsManaged = 8,   // bool
  kDeviceOrdinal = 9,
  kIsIpcCapable = 10,        // bool
  kRangeStart = 11,          // void*
  kRangeSize = 12,           // size_t
  kAllowedHandleTypes = 14,  // uint64_t
  kMempoolHandle = 17,       // void*
  kMappingSize = 18,         // size_t
  kMappingBase = 19,         // void*
};

// By the names of cuda.h, without "cu" and "_v2".
struct Driver {
  Result (*Init)(unsigned flags) = nullptr;
  Result (*GetErrorName)(Result error, const char** name) = nullptr;
  Result (*DeviceGetCount)(int* count) = nullptr;
  Result (*DeviceGetUuid)(Uuid* uuid, int device) = nullptr;
  Result (*DevicePrimaryCtxRetain)(Context* context, int device) = nullptr;
  Result (*CtxPushCurrent)(Context context) = nullptr;
  Result (*CtxPopCurrent)(Context* context) = nullptr;
  Result (*PointerGetAttributes)(unsigned count, int* attributes, void** values,
                                 DevicePointer pointer) = nullptr;
  Result (*MemAlloc)(DevicePointer* pointer, size_t bytes) = nullptr;
  Result (*MemFree)(DevicePointer pointer) = nullptr;
  Result (*MemcpyHtoD)(DevicePointer to, const void* from,
                       size_t bytes) = nullptr;
  Result (*MemcpyDtoH)(void* to, DevicePointer from, size_t bytes) = nullptr;
  Result (*IpcGetMemHandle)(IpcHandle* handle, DevicePointer pointer) = nullptr;
  Result (*StreamQuery)(Stream stream) = nullptr;
  Result (*StreamSynchronize)(Stream stream) = nullptr;
  Result (*StreamWaitEvent)(Stream stream, Event event,
                            unsigned flags) = nullptr;
  Result (*EventCreate)(Event* event, unsigned flags) = nullptr;
  Result (*EventDestroy)(Event event) = nullptr;
  Result (*EventRecord)(Event event, Stream stream) = nullptr;
  Result (*IpcGetEventHandle)(IpcHandle* handle, Event event) = nullptr;
  Result (*MemCreate)(AllocationHandle* handle, size_t bytes,
                      const AllocationProperties* properties,
                      unsigned long long flags) = nullptr;
  Result (*MemRelease)(AllocationHandle handle) = nullptr;
  Result (*MemRetainAllocationHandle)(AllocationHandle* handle,
                                      void* pointer) = nullptr;
  Result (*MemExportToShareableHandle)(void* descriptor,
                                       AllocationHandle handle, int type,
                                       unsigned long long flags) = nullptr;
  Result (*MemAddressReserve)(DevicePointer* pointer, size_t bytes,
                              size_t alignment, DevicePointer wish,
                              unsigned long long flags) = nullptr;
  Result (*MemAddressFree)(DevicePointer pointer, size_t bytes) = nullptr;
  Result (*MemMap)(DevicePointer pointer, size_t bytes, size_t offset,
                   AllocationHandle handle, unsigned long long flags) = nullptr;
  Result (*MemUnmap)(DevicePointer pointer, size_t bytes) = nullptr;
  Result (*MemSetAccess)(DevicePointer pointer, size_t bytes,
                         const AccessDescription* access,
                         size_t count) = nullptr;

  // "CUDA_ERROR_INVALID_VALUE"
  std::string NameOf(Result result) const;
  // INTERNAL "<what>: <name>" unless it is a success.
  absl::Status Check(Result result, const char* what) const;

  // The one of this process, which stays loaded. UNIMPLEMENTED if there is no
  // driver or no GPU.
  static absl::StatusOr<const Driver*> Load();
};

// Looks a symbol of the driver up; null = it is not there. For tests.
using FindSymbol = std::function<void*(const char* name)>;
absl::Status FillDriver(const FindSymbol& find, Driver* driver);

// "GPU-..." as nvidia-smi -L writes it; empty if the driver does not tell.
std::string UuidOf(const Driver& driver, int device);

// The primary context of a device, current on this thread while this lives.
class CurrentDevice {
 public:
  CurrentDevice(const Driver& driver, int device);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  const absl::Status& status() const { return status_; }

 private:
  const Driver& driver_;
  absl::Status status_;
};

}  // namespace attendant::client::cuda
