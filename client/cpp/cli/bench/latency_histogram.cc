#include "client/cpp/cli/bench/latency_histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace attendant::client::cli {
namespace {

constexpr int kSubBits = 7;  // 128 buckets an octave
constexpr int64_t kSub = int64_t{1} << kSubBits;
constexpr int kTopBits = 40;
constexpr int64_t kLargest = (int64_t{1} << kTopBits) - 1;

// Values below 128 have a bucket each; above, the leading 8 bits choose it.
size_t BucketOf(int64_t value) {
  if (value < kSub) return static_cast<size_t>(value);
  const int shift =
      std::bit_width(static_cast<uint64_t>(value)) - (kSubBits + 1);
  return static_cast<size_t>((shift + 1) * kSub + (value >> shift) - kSub);
}

int64_t UpperEdge(size_t bucket) {
  const auto index = static_cast<int64_t>(bucket);
  if (index < kSub) return index;
  const int64_t shift = index / kSub - 1;
  return ((index % kSub + kSub + 1) << shift) - 1;
}

}  // namespace

LatencyHistogram::LatencyHistogram() : counts_(BucketOf(kLargest) + 1) {}

void LatencyHistogram::Record(nanoseconds value) {
  const int64_t ns = std::clamp<int64_t>(value.count(), 0, kLargest);
  ++counts_[BucketOf(ns)];
  min_ = count_ == 0 ? ns : std::min(min_, ns);
  max_ = std::max(max_, ns);
  sum_ += static_cast<double>(ns);
  ++count_;
}

void LatencyHistogram::Merge(const LatencyHistogram& other) {
  if (other.count_ == 0) return;
  for (size_t b = 0; b < counts_.size(); ++b) counts_[b] += other.counts_[b];
  min_ = count_ == 0 ? other.min_ : std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
  sum_ += other.sum_;
  count_ += other.count_;
}

std::chrono::nanoseconds LatencyHistogram::mean() const {
  if (count_ == 0) return nanoseconds(0);
  return nanoseconds(std::llround(sum_ / static_cast<double>(count_)));
}

std::chrono::nanoseconds LatencyHistogram::Quantile(double share) const {
  if (count_ == 0) return nanoseconds(0);
  const auto rank = std::max<int64_t>(
      1, std::llround(std::ceil(share * static_cast<double>(count_))));
  int64_t seen = 0;
  for (size_t b = 0; b < counts_.size(); ++b) {
    seen += counts_[b];
    if (seen >= rank) return nanoseconds(std::min(UpperEdge(b), max_));
  }
  return max();
}

std::vector<std::pair<std::chrono::nanoseconds, int64_t>>
LatencyHistogram::Buckets() const {
  std::vector<std::pair<nanoseconds, int64_t>> buckets;
  for (size_t b = 0; b < counts_.size(); ++b) {
    if (counts_[b] == 0) continue;
    buckets.emplace_back(nanoseconds(UpperEdge(b)), counts_[b]);
  }
  return buckets;
}

}  // namespace attendant::client::cli
