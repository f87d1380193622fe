#include "client/cpp/cli/bench/latency_histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace attendant::client::cli {
namespace {

using std::chrono::nanoseconds;

TEST(LatencyHistogram, QuantilesAreWithinABucketOfTheExactOnes) {
  std::mt19937_64 engine(1);
  std::lognormal_distribution<double> distribution(13, 3);
  LatencyHistogram histogram;
  std::vector<int64_t> values;
  for (int i = 0; i < 20'000; ++i) {
    values.push_back(std::llround(distribution(engine)));
    histogram.Record(nanoseconds(values.back()));
  }
  std::sort(values.begin(), values.end());
  for (const double share : {0.0, 0.001, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const auto rank =
        std::max<size_t>(1, static_cast<size_t>(std::ceil(share * 20'000)));
    const auto exact = static_cast<double>(values[rank - 1]);
    const auto got = static_cast<double>(histogram.Quantile(share).count());
    EXPECT_GE(got, exact) << share;
    EXPECT_LE(got, exact * (1 + 1.0 / 128) + 1) << share;
  }
  EXPECT_EQ(histogram.max().count(), values.back());
  EXPECT_EQ(histogram.Quantile(1).count(), values.back());
  EXPECT_EQ(histogram.min().count(), values.front());
}

TEST(LatencyHistogram, MergesAsIfAllWereRecordedInOne) {
  LatencyHistogram a, b, both;
  for (int64_t i = 1; i < 100'000; i = i * 3 / 2 + 1) {
    (i % 2 == 0 ? a : b).Record(nanoseconds(i));
    both.Record(nanoseconds(i));
  }
  a.Merge(b);
  a.Merge(LatencyHistogram());
  EXPECT_EQ(a.Buckets(), both.Buckets());
  EXPECT_EQ(a.mean(), both.mean());
  EXPECT_EQ(a.min(), both.min());
  EXPECT_EQ(a.max(), both.max());
}

TEST(LatencyHistogram, EdgesOfTheRange) {
  LatencyHistogram histogram;
  EXPECT_EQ(histogram.Quantile(0.5).count(), 0);
  EXPECT_EQ(histogram.mean().count(), 0);
  histogram.Record(nanoseconds(-5));
  EXPECT_EQ(histogram.max().count(), 0);
  histogram.Record(std::chrono::hours(100));
  EXPECT_EQ(histogram.max().count(), (int64_t{1} << 40) - 1);
  EXPECT_EQ(histogram.Quantile(1).count(), (int64_t{1} << 40) - 1);
  EXPECT_EQ(histogram.count(), 2);
}

}  // namespace
}  // namespace attendant::client::cli
