#include "client/cpp/cuda/driver.h"

#include <dlfcn.h>

#include <cstring>
#include <map>
#include <mutex>

#include "absl/strings/str_cat.h"

namespace attendant::client::cuda {
namespace {

constexpr char kLibrary[] = "libcuda.so.1";

struct Symbol {
  const char* name;
  void* target;
};

absl::Status Fill(const FindSymbol& find,
                  std::initializer_list<Symbol> wanted) {
  for (const auto& [name, target] : wanted) {
    void* function = find(name);
    if (function == nullptr) {
      return absl::UnimplementedError(
          absl::StrCat("the CUDA driver has no ", name, ": it is too old"));
    }
    std::memcpy(target, &function, sizeof(function));
  }
  return absl::OkStatus();
}

absl::StatusOr<const Driver*> LoadOnce() {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("there is no CUDA driver on this machine: ", dlerror()));
  }
  static Driver driver;
  absl::Status status = FillDriver(
      [library](const char* name) { return dlsym(library, name); }, &driver);
  if (!status.ok()) return status;
  int count = 0;
  const Result result = driver.Init(0);
  if (result != 0 || driver.DeviceGetCount(&count) != 0 || count == 0) {
    return absl::UnimplementedError(
        absl::StrCat("there is no GPU on this machine: ",
                     result != 0 ? driver.NameOf(result) : "no device"));
  }
  return &driver;
}

}  // namespace

absl::Status FillDriver(const FindSymbol& find, Driver* d) {
  return Fill(find,
              {{"cuInit", &d->Init},
               {"cuGetErrorName", &d->GetErrorName},
               {"cuDeviceGetCount", &d->DeviceGetCount},
               {"cuDeviceGetUuid_v2", &d->DeviceGetUuid},
               {"cuDevicePrimaryCtxRetain", &d->DevicePrimaryCtxRetain},
               {"cuCtxPushCurrent_v2", &d->CtxPushCurrent},
               {"cuCtxPopCurrent_v2", &d->CtxPopCurrent},
               {"cuPointerGetAttributes", &d->PointerGetAttributes},
               {"cuMemAlloc_v2", &d->MemAlloc},
               {"cuMemFree_v2", &d->MemFree},
               {"cuMemcpyHtoD_v2", &d->MemcpyHtoD},
               {"cuMemcpyDtoH_v2", &d->MemcpyDtoH},
               {"cuIpcGetMemHandle", &d->IpcGetMemHandle},
               {"cuStreamQuery", &d->StreamQuery},
               {"cuStreamSynchronize", &d->StreamSynchronize},
               {"cuStreamWaitEvent", &d->StreamWaitEvent},
               {"cuEventCreate", &d->EventCreate},
               {"cuEventDestroy_v2", &d->EventDestroy},
               {"cuEventRecord", &d->EventRecord},
               {"cuIpcGetEventHandle", &d->IpcGetEventHandle},
               {"cuMemCreate", &d->MemCreate},
               {"cuMemRelease", &d->MemRelease},
               {"cuMemRetainAllocationHandle", &d->MemRetainAllocationHandle},
               {"cuMemExportToShareableHandle", &d->MemExportToShareableHandle},
               {"cuMemAddressReserve", &d->MemAddressReserve},
               {"cuMemAddressFree", &d->MemAddressFree},
               {"cuMemMap", &d->MemMap},
               {"cuMemUnmap", &d->MemUnmap},
               {"cuMemSetAccess", &d->MemSetAccess}});
}

absl::StatusOr<const Driver*> Driver::Load() {
  static const absl::StatusOr<const Driver*> loaded = LoadOnce();
  return loaded;
}

std::string Driver::NameOf(Result result) const {
  const char* name = nullptr;
  if (GetErrorName(result, &name) != 0 || name == nullptr) {
    return absl::StrCat("CUDA error ", result);
  }
  return name;
}

absl::Status Driver::Check(Result result, const char* what) const {
  if (result == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, ": ", NameOf(result)));
}

std::string UuidOf(const Driver& driver, int device) {
  Uuid uuid;
  if (driver.DeviceGetUuid(&uuid, device) != 0) return "";
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

CurrentDevice::CurrentDevice(const Driver& driver, int device)
    : driver_(driver) {
  // Retained once and for good: what this process has on the device, it keeps.
  static std::mutex mutex;
  static std::map<std::pair<const Driver*, int>, Context> contexts;
  const std::lock_guard lock(mutex);
  Context& context = contexts[{&driver, device}];
  if (context == nullptr) {
    status_ = driver.Check(driver.DevicePrimaryCtxRetain(&context, device),
                           "cuDevicePrimaryCtxRetain");
  }
  if (status_.ok()) {
    status_ = driver.Check(driver.CtxPushCurrent(context), "cuCtxPushCurrent");
  }
}

CurrentDevice::~CurrentDevice() {
  Context context = nullptr;
  if (status_.ok()) driver_.CtxPopCurrent(&context);
}

}  // namespace attendant::client::cuda
