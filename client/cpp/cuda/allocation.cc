#include "client/cpp/cuda/allocation.h"

#include <unistd.h>

#include <array>

#include "absl/strings/str_cat.h"
#include "client/cpp/client_error.h"

namespace attendant::client::cuda {
namespace {

constexpr int kPosixDescriptor = 1;  // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
constexpr unsigned kDeviceMemory = 2;  // CU_MEMORYTYPE_DEVICE

// What the driver says of a pointer; zeros for one that is none of its own.
struct Attributes {
  unsigned memory_type = 0;
  uint64_t buffer_id = 0;
  uint64_t is_managed = 0;  // a bool, in memory that was zero
  int device = 0;
  uint64_t is_ipc_capable = 0;
  void* range_start = nullptr;
  size_t range_bytes = 0;
  uint64_t handle_types = 0;
  void* pool = nullptr;
  size_t mapping_bytes = 0;
  void* mapping_base = nullptr;
};

Attributes Ask(const Driver& driver, const void* pointer) {
  Attributes found;
  std::array<int, 11> names = {
      kMemoryType,    kBufferId,    kIsManaged,  kDeviceOrdinal,
      kIsIpcCapable,  kRangeStart,  kRangeSize,  kAllowedHandleTypes,
      kMempoolHandle, kMappingSize, kMappingBase};
  std::array<void*, 11> values = {
      &found.memory_type,   &found.buffer_id,      &found.is_managed,
      &found.device,        &found.is_ipc_capable, &found.range_start,
      &found.range_bytes,   &found.handle_types,   &found.pool,
      &found.mapping_bytes, &found.mapping_base};
  const Result result = driver.PointerGetAttributes(
      static_cast<unsigned>(names.size()), names.data(), values.data(),
      reinterpret_cast<DevicePointer>(pointer));
  return result == 0 ? found : Attributes{};
}

// One handle is mapped from the mapping's first byte to its last.
bool IsOneHandle(const Driver& driver, std::byte* base, size_t bytes) {
  AllocationHandle first = 0, last = 0;
  if (driver.MemRetainAllocationHandle(&first, base) != 0) return false;
  const bool has_last =
      driver.MemRetainAllocationHandle(&last, base + bytes - 1) == 0;
  driver.MemRelease(first);
  if (has_last) driver.MemRelease(last);
  return has_last && first == last;
}

void FindExport(const Driver& driver, const Attributes& found,
                Allocation* allocation) {
  if (found.is_managed != 0) {
    allocation->why_not = "managed memory (cudaMallocManaged)";
  } else if (found.pool != nullptr) {
    allocation->why_not = "memory of a stream-ordered pool (cudaMallocAsync)";
  } else if (found.is_ipc_capable != 0) {
    allocation->export_by = Allocation::Export::kIpc;
  } else if ((found.handle_types & kPosixDescriptor) == 0) {
    allocation->why_not =
        "mapped memory that was made without a POSIX descriptor (PyTorch's "
        "expandable segments are)";
  } else if (found.mapping_base == nullptr || found.mapping_bytes == 0 ||
             !IsOneHandle(driver, static_cast<std::byte*>(found.mapping_base),
                          found.mapping_bytes)) {
    allocation->why_not = kSeveralPieces;
  } else {
    allocation->export_by = Allocation::Export::kVmm;
    allocation->base = static_cast<std::byte*>(found.mapping_base);
    allocation->bytes = static_cast<int64_t>(found.mapping_bytes);
  }
}

}  // namespace

std::optional<Allocation> AllocationOf(const Driver& driver,
                                       const void* pointer) {
  if (pointer == nullptr) return std::nullopt;
  const Attributes found = Ask(driver, pointer);
  const bool managed = found.is_managed != 0;
  if (found.memory_type != kDeviceMemory && !managed) return std::nullopt;
  Allocation allocation;
  allocation.base = static_cast<std::byte*>(found.range_start);
  allocation.bytes = static_cast<int64_t>(found.range_bytes);
  allocation.id = found.buffer_id;
  allocation.device = found.device;
  FindExport(driver, found, &allocation);
  return allocation;
}

uint64_t BufferIdOf(const Driver& driver, const void* pointer) {
  int name = kBufferId;
  uint64_t id = 0;
  void* value = &id;
  return driver.PointerGetAttributes(
             1, &name, &value, reinterpret_cast<DevicePointer>(pointer)) == 0
             ? id
             : 0;
}

absl::Status CheckExportable(const std::string& field,
                             const Allocation& allocation) {
  if (allocation.export_by != Allocation::Export::kNone) {
    return absl::OkStatus();
  }
  const std::string bound =
      "of cudaMalloc, or of one cuMemCreate with a POSIX descriptor (PyTorch: "
      "expandable_segments:False, backend:native)";
  return WithErrorDetail(
      absl::FailedPreconditionError(
          absl::StrCat(field, " lies in ", allocation.why_not,
                       ", which no other process can open; must be ", bound)),
      {field, allocation.why_not, bound});
}

absl::StatusOr<std::string> ExportIpc(const Driver& driver,
                                      const Allocation& allocation) {
  const CurrentDevice current(driver, allocation.device);
  if (!current.status().ok()) return current.status();
  IpcHandle handle;
  const absl::Status status = driver.Check(
      driver.IpcGetMemHandle(&handle,
                             reinterpret_cast<DevicePointer>(allocation.base)),
      "cuIpcGetMemHandle");
  if (!status.ok()) return status;
  return std::string(handle.bytes, sizeof(handle.bytes));
}

absl::StatusOr<int> ExportVmm(const Driver& driver,
                              const Allocation& allocation) {
  const CurrentDevice current(driver, allocation.device);
  if (!current.status().ok()) return current.status();
  AllocationHandle handle = 0;
  absl::Status status =
      driver.Check(driver.MemRetainAllocationHandle(&handle, allocation.base),
                   "cuMemRetainAllocationHandle");
  if (!status.ok()) return status;
  int descriptor = -1;
  status = driver.Check(driver.MemExportToShareableHandle(&descriptor, handle,
                                                          kPosixDescriptor, 0),
                        "cuMemExportToShareableHandle");
  driver.MemRelease(handle);
  if (!status.ok()) return status;
  return descriptor;
}

}  // namespace attendant::client::cuda
