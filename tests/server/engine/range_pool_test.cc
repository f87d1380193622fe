#include "server/engine/range_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

namespace attendant::server {
namespace {

TEST(RangePoolTest, RoundsRangesUpToTheAlignment) {
  RangePool pool(1024);
  EXPECT_EQ(pool.Allocate(1), 0);
  EXPECT_EQ(pool.Allocate(257), 256);
  EXPECT_EQ(pool.used_bytes(), 768);
  EXPECT_EQ(pool.Allocate(256), 768);
  EXPECT_EQ(pool.Allocate(1), std::nullopt);
}

TEST(RangePoolTest, RefusesMoreThanItsCapacity) {
  RangePool pool(1024);
  EXPECT_EQ(pool.Allocate(1025), std::nullopt);
  EXPECT_EQ(pool.Allocate(INT64_MAX), std::nullopt);
  EXPECT_EQ(pool.Allocate(1024), 0);
}

TEST(RangePoolTest, TakesTheSmallestRangeThatFits) {
  RangePool pool(256 * 16);
  const auto large = pool.Allocate(256 * 4);
  const auto wall = pool.Allocate(256);
  const auto small = pool.Allocate(256 * 2);
  const auto rest = pool.Allocate(256 * 9);
  ASSERT_TRUE(large && wall && small && rest);
  pool.Release(*large, 256 * 4);
  pool.Release(*small, 256 * 2);
  EXPECT_EQ(pool.Allocate(256 * 2), *small);
  EXPECT_EQ(pool.Allocate(256 * 3), *large);
}

TEST(RangePoolTest, MergesNeighboursOnBothSides) {
  RangePool pool(768);
  const auto a = pool.Allocate(256), b = pool.Allocate(256);
  const auto c = pool.Allocate(256);
  pool.Release(*a, 256);
  pool.Release(*c, 256);
  EXPECT_EQ(pool.Allocate(512), std::nullopt);
  pool.Release(*b, 256);
  EXPECT_EQ(pool.Allocate(768), 0);
}

TEST(RangePoolTest, KeepsItsPeak) {
  RangePool pool(4096);
  { const RangeHold hold(&pool, *pool.Allocate(2048), 2048); }
  EXPECT_EQ(pool.used_bytes(), 0);
  EXPECT_EQ(pool.peak_bytes(), 2048);
}

TEST(RangePoolTest, AMovedHoldGivesBackOnce) {
  RangePool pool(4096);
  RangeHold hold(&pool, *pool.Allocate(1000), 1000);
  RangeHold other = std::move(hold);
  EXPECT_EQ(pool.used_bytes(), 1024);
  other = RangeHold();
  EXPECT_EQ(pool.used_bytes(), 0);
}

TEST(RangePoolTest, RandomUseNeverOverlapsAndEndsWhole) {
  constexpr int64_t kUnits = 512;
  RangePool pool(256 * kUnits);
  std::vector<int> owner(kUnits, 0);
  struct Held {
    int64_t offset, bytes;
  };
  std::vector<Held> held;
  std::mt19937 random(7);
  const auto mark = [&](const Held& range, int from, int to) {
    for (int64_t u = range.offset / 256;
         u < (range.offset + range.bytes + 255) / 256; ++u) {
      ASSERT_EQ(owner[u], from);
      owner[u] = to;
    }
  };
  for (int step = 0; step < 20000; ++step) {
    if (held.empty() || random() % 2 == 0) {
      const int64_t bytes = 1 + static_cast<int64_t>(random() % 8000);
      const auto offset = pool.Allocate(bytes);
      if (!offset) continue;
      held.push_back({*offset, bytes});
      mark(held.back(), 0, 1);
    } else {
      std::swap(held[random() % held.size()], held.back());
      mark(held.back(), 1, 0);
      pool.Release(held.back().offset, held.back().bytes);
      held.pop_back();
    }
  }
  for (const Held& range : held) pool.Release(range.offset, range.bytes);
  EXPECT_EQ(pool.used_bytes(), 0);
  EXPECT_EQ(pool.Allocate(256 * kUnits), 0);
}

}  // namespace
}  // namespace attendant::server
