#include "server/regions/host_buffer.h"

#include <sys/mman.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/errors.h"

namespace attendant::server {
namespace {

class HostBuffer final : public RegionMemory {
 public:
  HostBuffer(std::byte* data, int64_t bytes) : data_(data), bytes_(bytes) {}
  ~HostBuffer() override {
    pin_.reset();
    munmap(data_, static_cast<size_t>(bytes_));
  }

  absl::Status Pin(RegionDevice* device) {
    ASSIGN_OR_RETURN(pin_, device->Register(data_, bytes_, true));
    return absl::OkStatus();
  }

  int64_t bytes() const override { return bytes_; }
  bool writable() const override { return true; }
  std::byte* host() const override { return data_; }
  absl::Status Read(int64_t offset, int64_t bytes, std::byte* to) override {
    std::memcpy(to, data_ + offset, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }
  absl::Status Write(int64_t offset, int64_t bytes,
                     const std::byte* from) override {
    std::memcpy(data_ + offset, from, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }
  std::string identity() const override {
    return absl::StrCat("host ", reinterpret_cast<uintptr_t>(data_));
  }

 private:
  std::byte* const data_;
  const int64_t bytes_;
  std::shared_ptr<void> pin_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RegionMemory>> MakeHostBuffer(
    int64_t bytes, RegionDevice* device) {
  void* pages =
      mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) {
    constexpr int64_t kRetryMs = 1000;
    return Overloaded("byte_length", absl::StrCat(bytes),
                      "what the system has left", kRetryMs);
  }
  auto buffer =
      std::make_unique<HostBuffer>(static_cast<std::byte*>(pages), bytes);
  if (device != nullptr) RETURN_IF_ERROR(buffer->Pin(device));
  return buffer;
}

}  // namespace attendant::server
