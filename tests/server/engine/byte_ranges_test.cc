#include "server/engine/byte_ranges.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace attendant::server {
namespace {

TEST(ByteRangesTest, TouchingRangesBecomeOne) {
  ByteRanges ranges;
  EXPECT_FALSE(ranges.Add({10, 20}).has_value());
  EXPECT_FALSE(ranges.Add({30, 40}).has_value());
  EXPECT_EQ(ranges.runs(), 2u);
  EXPECT_FALSE(ranges.Add({20, 30}).has_value());
  EXPECT_EQ(ranges.runs(), 1u);
  EXPECT_EQ(ranges.bytes(), 30);
}

TEST(ByteRangesTest, AnOverlapIsNamedAndChangesNothing) {
  ByteRanges ranges;
  ranges.Add({10, 20});
  const auto before = ranges.Add({5, 11});
  ASSERT_TRUE(before.has_value());
  EXPECT_EQ(before->begin, 10);
  EXPECT_EQ(before->end, 11);
  const auto behind = ranges.Add({19, 30});
  ASSERT_TRUE(behind.has_value());
  EXPECT_EQ(behind->begin, 19);
  EXPECT_EQ(behind->end, 20);
  EXPECT_TRUE(ranges.Add({12, 13}).has_value());
  EXPECT_TRUE(ranges.Add({0, 100}).has_value());
  EXPECT_EQ(ranges.bytes(), 10);
  EXPECT_EQ(ranges.runs(), 1u);
}

TEST(ByteRangesTest, MissingNamesEveryGap) {
  ByteRanges ranges;
  ranges.Add({10, 20});
  ranges.Add({30, 40});
  const auto missing = ranges.Missing({5, 50});
  ASSERT_EQ(missing.size(), 3u);
  EXPECT_EQ(missing[0].begin, 5);
  EXPECT_EQ(missing[1].begin, 20);
  EXPECT_EQ(missing[1].end, 30);
  EXPECT_EQ(missing[2].end, 50);
  EXPECT_TRUE(ranges.Missing({12, 20}).empty());
  EXPECT_EQ(ranges.Missing({12, 25})[0].begin, 20);
}

TEST(ByteRangesTest, AgreesWithABitmap) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    ByteRanges ranges;
    std::vector<bool> set(64, false);
    for (int step = 0; step < 30; ++step) {
      const int64_t begin = random() % 63;
      const int64_t end = begin + 1 + random() % (64 - begin - 1 + 1);
      bool overlaps = false;
      for (int64_t i = begin; i < end; ++i) overlaps |= set[i];
      ASSERT_EQ(ranges.Add({begin, end}).has_value(), overlaps);
      for (int64_t i = begin; i < end && !overlaps; ++i) set[i] = true;
      int64_t bytes = 0;
      for (const bool bit : set) bytes += bit;
      ASSERT_EQ(ranges.bytes(), bytes);
      for (const ByteRange& gap : ranges.Missing({0, 64})) {
        for (int64_t i = gap.begin; i < gap.end; ++i) ASSERT_FALSE(set[i]);
        bytes += gap.bytes();
      }
      ASSERT_EQ(bytes, 64);
    }
  }
}

}  // namespace
}  // namespace attendant::server
