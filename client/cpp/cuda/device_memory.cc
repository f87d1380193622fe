#include "client/cpp/cuda/device_memory.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace attendant::client::cuda {
namespace {

// Allocations share pages of this size: less is not worth having, and a handle
// is for whole pages.
constexpr int64_t kGranularity = int64_t{2} << 20;

DevicePointer At(const std::byte* pointer) {
  return reinterpret_cast<DevicePointer>(pointer);
}

class DeviceMemory : public DoorMemory {
 public:
  DeviceMemory(const Driver& driver, int device, int64_t bytes,
               BeforeFree before_free)
      : driver_(driver), device_(device), before_free_(std::move(before_free)) {
    range_.bytes = (bytes + kGranularity - 1) / kGranularity * kGranularity;
  }

  const SharedRange& range() const override { return range_; }
  bool is_named() const override { return false; }

  absl::Status CopyIn(std::byte* to, std::span<const std::byte> from) override {
    const CurrentDevice current(driver_, device_);
    if (!current.status().ok()) return current.status();
    absl::Status status = driver_.Check(
        driver_.MemcpyHtoD(At(to), from.data(), from.size()), "cuMemcpyHtoD");
    if (!status.ok()) return status;
    // From pageable memory it returns before the last bytes are there.
    return driver_.Check(driver_.StreamSynchronize(nullptr),
                         "cuStreamSynchronize");
  }
  absl::Status CopyOut(std::byte* to, const std::byte* from,
                       int64_t bytes) override {
    return CopyToHost(driver_, device_, to, from, bytes);
  }

 protected:
  const Driver& driver_;
  const int device_;
  const BeforeFree before_free_;
  SharedRange range_;
};

class PlainMemory final : public DeviceMemory {
 public:
  using DeviceMemory::DeviceMemory;
  ~PlainMemory() override {
    if (range_.data == nullptr) return;
    before_free_(range_.data);
    const CurrentDevice current(driver_, device_);
    driver_.MemFree(At(range_.data));
  }
  absl::Status Allocate() {
    DevicePointer pointer = 0;
    absl::Status status = driver_.Check(
        driver_.MemAlloc(&pointer, static_cast<size_t>(range_.bytes)),
        "cuMemAlloc");
    range_.data = reinterpret_cast<std::byte*>(pointer);
    return status;
  }
};

class VmmMemory final : public DeviceMemory {
 public:
  using DeviceMemory::DeviceMemory;
  ~VmmMemory() override {
    if (range_.data == nullptr) return;
    before_free_(range_.data);
    const CurrentDevice current(driver_, device_);
    const auto bytes = static_cast<size_t>(range_.bytes);
    if (mapped_) driver_.MemUnmap(At(range_.data), bytes);
    driver_.MemAddressFree(At(range_.data), bytes);
  }
  absl::Status Allocate() {
    AllocationProperties properties;
    properties.location.id = device_;
    const auto bytes = static_cast<size_t>(range_.bytes);
    AllocationHandle handle = 0;
    absl::Status status = driver_.Check(
        driver_.MemCreate(&handle, bytes, &properties, 0), "cuMemCreate");
    if (!status.ok()) return status;
    status = Map(handle, bytes);
    driver_.MemRelease(handle);  // the mapping keeps the memory
    return status;
  }

 private:
  absl::Status Map(AllocationHandle handle, size_t bytes) {
    DevicePointer pointer = 0;
    absl::Status status =
        driver_.Check(driver_.MemAddressReserve(&pointer, bytes, 0, 0, 0),
                      "cuMemAddressReserve");
    if (!status.ok()) return status;
    range_.data = reinterpret_cast<std::byte*>(pointer);
    status =
        driver_.Check(driver_.MemMap(pointer, bytes, 0, handle, 0), "cuMemMap");
    if (!status.ok()) return status;
    mapped_ = true;
    AccessDescription access;
    access.location.id = device_;
    return driver_.Check(driver_.MemSetAccess(pointer, bytes, &access, 1),
                         "cuMemSetAccess");
  }

  bool mapped_ = false;
};

template <typename Memory>
absl::StatusOr<std::unique_ptr<DoorMemory>> Make(const Driver& driver,
                                                 int device, int64_t bytes,
                                                 BeforeFree before_free) {
  auto memory =
      std::make_unique<Memory>(driver, device, bytes, std::move(before_free));
  const absl::Status status = memory->Allocate();
  if (status.ok()) return memory;
  return absl::ResourceExhaustedError(
      absl::StrCat(bytes, " bytes on the GPU: ", status.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DoorMemory>> MakeDeviceMemory(
    const Driver& driver, int device, int64_t bytes, bool vmm,
    BeforeFree before_free) {
  const CurrentDevice current(driver, device);
  if (!current.status().ok()) return current.status();
  const auto make = vmm ? Make<VmmMemory> : Make<PlainMemory>;
  return make(driver, device, bytes, std::move(before_free));
}

absl::Status CopyToHost(const Driver& driver, int device, std::byte* to,
                        const std::byte* from, int64_t bytes) {
  const CurrentDevice current(driver, device);
  if (!current.status().ok()) return current.status();
  return driver.Check(
      driver.MemcpyDtoH(to, At(from), static_cast<size_t>(bytes)),
      "cuMemcpyDtoH");
}

absl::StatusOr<int> DeviceOf(const Driver& driver, const std::string& uuid) {
  int count = 0;
  absl::Status status =
      driver.Check(driver.DeviceGetCount(&count), "cuDeviceGetCount");
  if (!status.ok()) return status;
  std::string seen;
  for (int device = 0; device < count; ++device) {
    const std::string own = UuidOf(driver, device);
    if (own == uuid) return device;
    absl::StrAppend(&seen, " ", own);
  }
  return absl::UnimplementedError(absl::StrCat("the server computes on ", uuid,
                                               ", this process sees", seen));
}

}  // namespace attendant::client::cuda
