// Host memory that tensors live in between the wire and the device: pinned for
// a GPU, plain pages for the CPU backend. Sized at start; never grows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"

namespace attendant::server {

class HostMemoryPool;

// A piece of a pool, aligned to 256 bytes. Move-only; gives itself back.
class HostBlock {
 public:
  HostBlock() = default;
  HostBlock(HostMemoryPool* pool, std::byte* data, int64_t bytes)
      : pool_(pool), data_(data), bytes_(bytes) {}
  HostBlock(HostBlock&& other) noexcept { *this = std::move(other); }
  HostBlock& operator=(HostBlock&& other) noexcept;
  ~HostBlock();

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  HostMemoryPool* pool_ = nullptr;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

// Thread-safe. Contents of a block are whatever its last user left: who takes
// one writes every byte that it shows to anybody.
class HostMemoryPool {
 public:
  virtual ~HostMemoryPool() = default;
  // bytes >= 0. RESOURCE_EXHAUSTED if the pool has no such piece left now.
  virtual absl::StatusOr<HostBlock> Allocate(int64_t bytes) = 0;
  virtual int64_t capacity_bytes() const = 0;
  virtual int64_t used_bytes() const = 0;

 private:
  friend class HostBlock;
  virtual void Release(std::byte* data, int64_t bytes) = 0;
};

inline HostBlock& HostBlock::operator=(HostBlock&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

inline HostBlock::~HostBlock() {
  if (pool_ != nullptr) pool_->Release(data_, bytes_);
}

}  // namespace attendant::server
