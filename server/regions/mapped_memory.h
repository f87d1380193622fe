// Pages that the server has mapped, as a region: its own or a memfd's.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "server/regions/region_device.h"
#include "server/regions/region_memory.h"

namespace attendant::server {

class MappedMemory final : public RegionMemory {
 public:
  // Takes over [data, data + bytes), which mmap returned.
  MappedMemory(std::byte* data, int64_t bytes, bool writable,
               std::string identity);
  ~MappedMemory() override;

  // Once, before use: the device's copy engine reaches the pages from then on.
  // Errors are RegionDevice::Register's.
  absl::Status Pin(RegionDevice* device);

  int64_t bytes() const override { return bytes_; }
  bool writable() const override { return writable_; }
  std::byte* host() const override { return data_; }
  absl::Status Read(int64_t offset, int64_t bytes, std::byte* to) override;
  absl::Status Write(int64_t offset, int64_t bytes,
                     const std::byte* from) override;
  std::string identity() const override { return identity_; }

 private:
  std::byte* const data_;
  const int64_t bytes_;
  const bool writable_;
  const std::string identity_;
  std::shared_ptr<void> pin_;
};

}  // namespace attendant::server
