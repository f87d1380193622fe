#include "client/cpp/cli/watch/metric_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace attendant::client::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(MetricSamples, ReadsNamesLabelsAndValues) {
  const MetricSamples samples(
      "# HELP a text\n# TYPE a counter\n"
      "a{x=\"1\",y=\"q\\\"u,}o\"} 2\na{x=\"2\"} 3.5\na 1e3\n"
      "b NaN\nbroken\n{x=\"1\"} 2\nc{x=\"1 2\nd{} 7\nlast 4");
  EXPECT_EQ(samples.Sum("a"), 1005.5);
  EXPECT_EQ(samples.Sum("a", {{"x", "1"}}), 2);
  EXPECT_EQ(samples.Sum("a", {{"y", "q\"u,}o"}}), 2);
  EXPECT_EQ(samples.Sum("a", {{"z", "1"}}), 0);
  EXPECT_EQ(samples.Sum("d"), 7);
  EXPECT_EQ(samples.Sum("last"), 4);
  EXPECT_TRUE(samples.Has("b"));
  EXPECT_FALSE(samples.Has("c"));
  EXPECT_THAT(samples.LabelValues("a", "x"), ElementsAre("1", "2"));
}

TEST(MetricSamples, QuantilesAreOfWhatCameBetween) {
  const std::string head = "h_bucket{s=\"u\",le=\"";
  const auto scrape = [&](int a, int b, int c) {
    return MetricSamples(head + "1\"} " + std::to_string(a) + "\n" + head +
                         "+Inf\"} " + std::to_string(c) + "\n" + head +
                         "2\"} " + std::to_string(b) + "\n")
        .Buckets("h", {{"s", "u"}});
  };
  const auto before = scrape(100, 100, 100);
  EXPECT_THAT(before,
              ElementsAre(Pair(1, 100), Pair(2, 100), Pair(HUGE_VAL, 100)));
  EXPECT_TRUE(std::isnan(QuantileBetween(before, before, 0.5)));
  // Ten values more, all between 1 and 2.
  EXPECT_DOUBLE_EQ(QuantileBetween(before, scrape(100, 110, 110), 0.5), 1.5);
  EXPECT_DOUBLE_EQ(QuantileBetween(before, scrape(110, 110, 110), 0.5), 0.5);
  // Above the last edge nothing more is known.
  EXPECT_DOUBLE_EQ(QuantileBetween(before, scrape(100, 100, 110), 0.5), 2);
  EXPECT_DOUBLE_EQ(QuantileBetween({}, scrape(10, 10, 10), 1), 1);
  EXPECT_TRUE(std::isnan(QuantileBetween({}, {}, 0.5)));
}

}  // namespace
}  // namespace attendant::client::cli
