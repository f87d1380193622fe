// Ranges of one fixed piece of memory, handed out best fit.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

namespace attendant::server {

// Knows offsets only, not the memory. Thread-safe. Ranges start at multiples of
// 256 and neighbours merge when released, so that an empty pool is whole again.
class RangePool {
 public:
  static constexpr int64_t kAlignment = 256;

  // capacity is rounded down to a multiple of kAlignment.
  explicit RangePool(int64_t capacity);

  // The lowest of the smallest free ranges that hold `bytes` > 0; nothing if
  // there is none.
  std::optional<int64_t> Allocate(int64_t bytes);
  // Exactly what Allocate was asked for and gave.
  void Release(int64_t offset, int64_t bytes);

  int64_t capacity_bytes() const { return capacity_; }
  int64_t used_bytes() const;
  int64_t peak_bytes() const;  // the most ever used

 private:
  void AddFree(int64_t offset, int64_t bytes);
  void RemoveFree(std::map<int64_t, int64_t>::iterator range);

  const int64_t capacity_;
  mutable std::mutex mu_;  // guards what follows
  std::map<int64_t, int64_t> free_by_offset_;
  std::set<std::pair<int64_t, int64_t>> free_by_bytes_;  // (bytes, offset)
  int64_t used_ = 0;
  int64_t peak_ = 0;
};

// A range that gives itself back. Move-only.
class RangeHold {
 public:
  RangeHold() = default;
  RangeHold(RangePool* pool, int64_t offset, int64_t bytes)
      : pool_(pool), offset_(offset), bytes_(bytes) {}
  RangeHold(RangeHold&& other) noexcept { *this = std::move(other); }
  RangeHold& operator=(RangeHold&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(offset_, other.offset_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~RangeHold() {
    if (pool_ != nullptr) pool_->Release(offset_, bytes_);
  }

  int64_t offset() const { return offset_; }
  int64_t bytes() const { return bytes_; }

 private:
  RangePool* pool_ = nullptr;
  int64_t offset_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace attendant::server
