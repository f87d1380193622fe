// Host bytes between two canaries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace attendant::testing {

// `bytes` bytes, all 0xff (NaN in every float type), between two guards of
// 0xff. data() is `offset` bytes past a 256-byte border. Move-only owner.
class GuardedBuffer {
 public:
  static constexpr int64_t kGuardBytes = 512;
  static constexpr int64_t kAlignment = 256;

  GuardedBuffer() = default;
  explicit GuardedBuffer(int64_t bytes, int64_t offset = 0);

  std::byte* data() { return whole_.get() + kGuardBytes + offset_; }
  const std::byte* data() const { return whole_.get() + kGuardBytes + offset_; }
  int64_t size() const { return bytes_; }
  bool empty() const { return whole_ == nullptr; }

  // Guards and all, from a 256-byte border.
  std::span<std::byte> whole() {
    return {whole_.get(), static_cast<size_t>(whole_bytes_)};
  }
  std::span<const std::byte> whole() const {
    return {whole_.get(), static_cast<size_t>(whole_bytes_)};
  }
  // True if `pointer` points into data() or just behind it.
  bool Contains(const void* pointer) const;
  void Poison();
  // Under AddressSanitizer: reading the guards (whole() too) is an error from
  // now on. Elsewhere nothing.
  void ForbidGuards();

 private:
  struct Free {
    void operator()(std::byte* bytes) const;
  };
  std::unique_ptr<std::byte[], Free> whole_;
  int64_t whole_bytes_ = 0;
  int64_t bytes_ = 0;
  int64_t offset_ = 0;
};

}  // namespace attendant::testing
