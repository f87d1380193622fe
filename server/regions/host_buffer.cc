#include "server/regions/host_buffer.h"

#include <sys/mman.h>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/regions/mapped_memory.h"
#include "server/request/errors.h"

namespace attendant::server {

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
  auto buffer = std::make_unique<MappedMemory>(
      static_cast<std::byte*>(pages), bytes, true,
      absl::StrCat("host ", reinterpret_cast<uintptr_t>(pages)));
  if (device != nullptr) RETURN_IF_ERROR(buffer->Pin(device));
  return buffer;
}

}  // namespace attendant::server
