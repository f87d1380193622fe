#include "tests/testing/guarded_buffer.h"

#include <cstring>
#include <new>

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

void GuardedBuffer::Poison() { std::memset(whole_.get(), 0xff, whole_bytes_); }

}  // namespace attendant::testing
