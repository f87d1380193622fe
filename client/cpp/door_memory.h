// Memory of a door's own that the server reaches too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "absl/status/status.h"
#include "client/cpp/attend_args.h"

namespace attendant::client {

// Not thread-safe but for range().
class DoorMemory {
 public:
  virtual ~DoorMemory() = default;

  // Aligned to what a region asks for; null if there is no room left.
  std::byte* Allocate(int64_t bytes) {
    constexpr int64_t kAlignment = 256;
    const int64_t begin = (used_ + kAlignment - 1) / kAlignment * kAlignment;
    const int64_t size = range().bytes;
    if (bytes < 0 || begin > size || bytes > size - begin) return nullptr;
    used_ = begin + bytes;
    return range().data + begin;
  }
  // Forgets what was allocated; the memory stays.
  void Reset() { used_ = 0; }

  virtual const SharedRange& range() const = 0;
  // False if the door finds the region of the memory by itself.
  virtual bool is_named() const { return true; }

  // Between this memory, the host's too unless a door says otherwise, and the
  // caller's.
  virtual absl::Status CopyIn(std::byte* to, std::span<const std::byte> from) {
    std::memcpy(to, from.data(), from.size());
    return absl::OkStatus();
  }
  virtual absl::Status CopyOut(std::byte* to, const std::byte* from,
                               int64_t bytes) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }

 private:
  int64_t used_ = 0;
};

}  // namespace attendant::client
