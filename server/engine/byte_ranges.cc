#include "server/engine/byte_ranges.h"

#include <algorithm>
#include <iterator>

namespace attendant::server {

std::optional<ByteRange> ByteRanges::Add(ByteRange range) {
  const auto next = runs_.upper_bound(range.begin);
  if (next != runs_.end() && next->first < range.end) {
    return ByteRange{next->first, std::min(range.end, next->second)};
  }
  auto before = runs_.end();
  if (next != runs_.begin()) {
    before = std::prev(next);
    if (before->second > range.begin) {
      return ByteRange{range.begin, std::min(range.end, before->second)};
    }
  }
  bytes_ += range.bytes();
  int64_t end = range.end;
  if (next != runs_.end() && next->first == end) {
    end = next->second;
    runs_.erase(next);
  }
  if (before != runs_.end() && before->second == range.begin) {
    before->second = end;
  } else {
    runs_.emplace(range.begin, end);
  }
  return std::nullopt;
}

std::vector<ByteRange> ByteRanges::Missing(ByteRange whole) const {
  std::vector<ByteRange> missing;
  int64_t at = whole.begin;
  auto run = runs_.upper_bound(whole.begin);
  if (run != runs_.begin()) at = std::max(at, std::prev(run)->second);
  for (; run != runs_.end() && run->first < whole.end; ++run) {
    if (run->first > at) missing.push_back({at, run->first});
    at = std::max(at, run->second);
  }
  if (at < whole.end) missing.push_back({at, whole.end});
  return missing;
}

}  // namespace attendant::server
