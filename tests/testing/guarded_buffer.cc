#include "tests/testing/guarded_buffer.h"

#include <cstring>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace attendant::testing {

GuardedBuffer::GuardedBuffer(int64_t bytes, int64_t offset)
    : whole_bytes_(bytes + offset + 2 * kGuardBytes),
      bytes_(bytes),
      offset_(offset) {
  whole_.reset(static_cast<std::byte*>(
      ::operator new[](whole_bytes_, std::align_val_t{kAlignment})));
  Poison();
}

void GuardedBuffer::Free::operator()(std::byte* bytes) const {
  ::operator delete[](bytes, std::align_val_t{kAlignment});
}

bool GuardedBuffer::Contains(const void* pointer) const {
  const auto* byte = static_cast<const std::byte*>(pointer);
  return !empty() && byte >= data() && byte <= data() + bytes_;
}

void GuardedBuffer::ForbidGuards() {
#if defined(__SANITIZE_ADDRESS__)
  std::byte* const end = whole_.get() + whole_bytes_;
  __asan_poison_memory_region(whole_.get(), data() - whole_.get());
  __asan_poison_memory_region(data() + bytes_, end - (data() + bytes_));
#endif
}

void GuardedBuffer::Poison() { std::memset(whole_.get(), 0xff, whole_bytes_); }

}  // namespace attendant::testing
