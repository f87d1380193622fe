// A set of byte positions that grows by whole ranges, each at most once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace attendant::server {

struct ByteRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t bytes() const { return end - begin; }
};

// Not thread-safe.
class ByteRanges {
 public:
  // Adds [begin, end), begin < end, and returns none; or adds nothing and
  // returns a part of it that was there already.
  std::optional<ByteRange> Add(ByteRange range);
  int64_t bytes() const { return bytes_; }
  // Runs without a gap.
  size_t runs() const { return runs_.size(); }
  // What is missing of [begin, end), in order.
  std::vector<ByteRange> Missing(ByteRange whole) const;

 private:
  std::map<int64_t, int64_t> runs_;  // begin -> end, never touching
  int64_t bytes_ = 0;
};

}  // namespace attendant::server
