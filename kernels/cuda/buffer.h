// Owners of device memory and of pinned host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"

namespace attendant::kernels::cuda {

enum class MemoryKind {
  kDevice,  // of the device that was current at Create
  kPinned,  // page-locked host memory, usable by every device
};

// A piece of memory, aligned to 256 bytes, contents undefined. Move-only.
// Creating and freeing may wait for the device: not for hot paths.
template <MemoryKind kind>
class Buffer {
 public:
  // bytes >= 0; 0 gives a null buffer. RESOURCE_EXHAUSTED if there is no room.
  static absl::StatusOr<Buffer> Create(int64_t bytes);

  Buffer() = default;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Buffer();

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

using DeviceBuffer = Buffer<MemoryKind::kDevice>;
using PinnedBuffer = Buffer<MemoryKind::kPinned>;
extern template class Buffer<MemoryKind::kDevice>;
extern template class Buffer<MemoryKind::kPinned>;

}  // namespace attendant::kernels::cuda
