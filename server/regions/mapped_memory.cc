#include "server/regions/mapped_memory.h"

#include <sys/mman.h>

#include <cstring>
#include <utility>

#include "kernels/base/status_macros.h"

namespace attendant::server {

MappedMemory::MappedMemory(std::byte* data, int64_t bytes, bool writable,
                           std::string identity)
    : data_(data),
      bytes_(bytes),
      writable_(writable),
      identity_(std::move(identity)) {}

MappedMemory::~MappedMemory() {
  pin_.reset();
  munmap(data_, static_cast<size_t>(bytes_));
}

absl::Status MappedMemory::Pin(RegionDevice* device) {
  ASSIGN_OR_RETURN(pin_, device->Register(data_, bytes_, writable_));
  return absl::OkStatus();
}

absl::Status MappedMemory::Read(int64_t offset, int64_t bytes, std::byte* to) {
  std::memcpy(to, data_ + offset, static_cast<size_t>(bytes));
  return absl::OkStatus();
}

absl::Status MappedMemory::Write(int64_t offset, int64_t bytes,
                                 const std::byte* from) {
  std::memcpy(data_ + offset, from, static_cast<size_t>(bytes));
  return absl::OkStatus();
}

}  // namespace attendant::server
