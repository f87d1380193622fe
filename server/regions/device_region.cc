#include "server/regions/device_region.h"

#include <utility>

namespace attendant::server {
namespace {

class DeviceRegion final : public RegionMemory {
 public:
  DeviceRegion(std::unique_ptr<DeviceMemory> memory, int64_t bytes,
               bool writable, RegionDevice* device)
      : memory_(std::move(memory)),
        bytes_(bytes),
        writable_(writable),
        device_(device) {}

  int64_t bytes() const override { return bytes_; }
  bool writable() const override { return writable_; }
  std::byte* device() const override { return memory_->data(); }
  void* ready_event() const override { return memory_->ready_event(); }
  absl::Status Read(int64_t offset, int64_t bytes, std::byte* to) override {
    return device_->CopyOut(to, memory_->data() + offset, bytes);
  }
  absl::Status Write(int64_t offset, int64_t bytes,
                     const std::byte* from) override {
    return device_->CopyIn(memory_->data() + offset, from, bytes);
  }
  // Addresses of a device mean the same to all regions in it.
  std::string identity() const override { return "device"; }
  int64_t identity_offset() const override {
    return reinterpret_cast<int64_t>(memory_->data());
  }

 private:
  const std::unique_ptr<DeviceMemory> memory_;
  const int64_t bytes_;
  const bool writable_;
  RegionDevice* const device_;
};

}  // namespace

std::unique_ptr<RegionMemory> MakeDeviceRegion(
    std::unique_ptr<DeviceMemory> memory, int64_t bytes, bool writable,
    RegionDevice* device) {
  return std::make_unique<DeviceRegion>(std::move(memory), bytes, writable,
                                        device);
}

}  // namespace attendant::server
