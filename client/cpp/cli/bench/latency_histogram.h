// Latencies in buckets of constant relative width.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

namespace attendant::client::cli {

// Any value from 1 ns to 2^40 ns (18 minutes; more counts as that) is kept
// within 1/128 of itself, in 34 x 128 counters. Not thread-safe: one for each
// caller, merged at the end.
class LatencyHistogram {
 public:
  using nanoseconds = std::chrono::nanoseconds;

  LatencyHistogram();

  void Record(nanoseconds value);
  void Merge(const LatencyHistogram& other);

  int64_t count() const { return count_; }
  nanoseconds min() const { return nanoseconds(count_ == 0 ? 0 : min_); }
  nanoseconds max() const { return nanoseconds(max_); }
  nanoseconds mean() const;
  // The least recorded bucket that at least `share` (0..1) of all values are
  // not above, by its upper edge; the exact maximum for 1. 0 if empty.
  nanoseconds Quantile(double share) const;

  // (upper edge, count) of every bucket that is not empty, ascending.
  std::vector<std::pair<nanoseconds, int64_t>> Buckets() const;

 private:
  std::vector<int64_t> counts_;
  int64_t count_ = 0;
  int64_t min_ = 0;
  int64_t max_ = 0;
  double sum_ = 0;
};

}  // namespace attendant::client::cli
