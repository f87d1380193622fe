#include "server/engine/range_pool.h"

#include <algorithm>
#include <iterator>

#include "kernels/base/check.h"

namespace attendant::server {
namespace {

int64_t RoundUp(int64_t bytes) {
  return (bytes + RangePool::kAlignment - 1) / RangePool::kAlignment *
         RangePool::kAlignment;
}

}  // namespace

RangePool::RangePool(int64_t capacity)
    : capacity_(capacity / kAlignment * kAlignment) {
  if (capacity_ > 0) AddFree(0, capacity_);
}

std::optional<int64_t> RangePool::Allocate(int64_t bytes) {
  ATTENDANT_CHECK(bytes > 0);
  if (bytes > capacity_) return std::nullopt;
  bytes = RoundUp(bytes);
  std::lock_guard lock(mu_);
  const auto best = free_by_bytes_.lower_bound({bytes, 0});
  if (best == free_by_bytes_.end()) return std::nullopt;
  const auto [range_bytes, offset] = *best;
  RemoveFree(free_by_offset_.find(offset));
  if (range_bytes > bytes) AddFree(offset + bytes, range_bytes - bytes);
  used_ += bytes;
  peak_ = std::max(peak_, used_);
  return offset;
}

void RangePool::Release(int64_t offset, int64_t bytes) {
  bytes = RoundUp(bytes);
  std::lock_guard lock(mu_);
  used_ -= bytes;
  auto next = free_by_offset_.lower_bound(offset);
  if (next != free_by_offset_.begin()) {
    const auto before = std::prev(next);
    ATTENDANT_CHECK(before->first + before->second <= offset);
    if (before->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      RemoveFree(before);
    }
  }
  if (next != free_by_offset_.end()) {
    ATTENDANT_CHECK(offset + bytes <= next->first);
    if (offset + bytes == next->first) {
      bytes += next->second;
      RemoveFree(next);
    }
  }
  AddFree(offset, bytes);
}

int64_t RangePool::used_bytes() const {
  std::lock_guard lock(mu_);
  return used_;
}

int64_t RangePool::peak_bytes() const {
  std::lock_guard lock(mu_);
  return peak_;
}

void RangePool::AddFree(int64_t offset, int64_t bytes) {
  free_by_offset_.emplace(offset, bytes);
  free_by_bytes_.emplace(bytes, offset);
}

void RangePool::RemoveFree(std::map<int64_t, int64_t>::iterator range) {
  free_by_bytes_.erase({range->second, range->first});
  free_by_offset_.erase(range);
}

}  // namespace attendant::server
