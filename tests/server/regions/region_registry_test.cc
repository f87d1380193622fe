#include "server/regions/region_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "server/request/errors.h"
#include "tests/server/regions/fake_region.h"

namespace attendant::testing {
namespace {

using server::RegionEntry;
using server::RegionKind;
using server::RegionRegistry;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kAda(32, 'a');
const std::string kBob(32, 'b');

server::Bounds SmallBounds() {
  server::Bounds bounds;
  bounds.max_regions = 4;
  bounds.max_regions_per_owner = 3;
  bounds.max_region_bytes = 1000;
  bounds.max_region_bytes_per_owner = 600;
  bounds.region_idle_seconds = 60;
  return bounds;
}

class RegionRegistryTest : public ::testing::Test {
 protected:
  absl::StatusOr<RegionEntry> Add(const std::string& owner, int64_t bytes,
                                  bool expires = false) {
    return registry_.Add(owner, RegionKind::kHostBuffer, bytes, expires, [&] {
      return absl::StatusOr<std::unique_ptr<server::RegionMemory>>(
          std::make_unique<FakeRegion>(bytes, &alive_));
    });
  }
  int64_t CountedBytes() {
    return registry_.Counts().bytes[static_cast<int>(RegionKind::kHostBuffer)];
  }

  std::atomic<int> alive_{0};
  RegionRegistry::Time now_{};
  RegionRegistry registry_{SmallBounds(), [this] { return now_; }};
};

TEST_F(RegionRegistryTest, NamesCannotBeGuessed) {
  const auto one = Add(kAda, 10);
  const auto two = Add(kAda, 10);
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_EQ(one->name.size(), 32u);
  EXPECT_NE(one->name, two->name);
}

TEST_F(RegionRegistryTest, AnothersRegionDoesNotExist) {
  const auto entry = Add(kAda, 10);
  const auto foreign = registry_.Find(kBob, entry->name, "q.region.name");
  const auto unknown = registry_.Find(kBob, "no such", "q.region.name");
  EXPECT_EQ(foreign.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(foreign.status(), unknown.status());
  EXPECT_THAT(std::string(foreign.status().message()),
              Not(HasSubstr(entry->name)));
  EXPECT_EQ(server::DetailOf(foreign.status())->field(), "q.region.name");
  EXPECT_EQ(registry_.Release(kBob, entry->name).code(),
            absl::StatusCode::kNotFound);
  EXPECT_TRUE(registry_.List(kBob).empty());
  EXPECT_TRUE(registry_.Find(kAda, entry->name, "").ok());
}

TEST_F(RegionRegistryTest, DoubleReleaseIsNotFound) {
  const std::string name = Add(kAda, 10)->name;
  EXPECT_TRUE(registry_.Release(kAda, name).ok());
  EXPECT_EQ(registry_.Release(kAda, name).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(alive_, 0);
}

TEST_F(RegionRegistryTest, MemoryGoesWithItsLastUser) {
  RegionEntry held = *Add(kAda, 10);
  EXPECT_TRUE(registry_.Release(kAda, held.name).ok());
  EXPECT_EQ(alive_, 1);
  EXPECT_EQ(CountedBytes(), 10) << "what is held is counted";
  held = RegionEntry();
  EXPECT_EQ(alive_, 0);
  EXPECT_EQ(CountedBytes(), 0);
}

TEST_F(RegionRegistryTest, BoundsHoldPerOwnerAndInAll) {
  const auto full = [](const absl::StatusOr<RegionEntry>& added,
                       const char* bound) {
    EXPECT_EQ(added.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(added.status().message()), HasSubstr(bound));
    EXPECT_GE(server::RetryPushbackMs(added.status()), 0);
  };
  EXPECT_EQ(Add(kAda, 601).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Add(kAda, 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Add(kAda, -1).status().code(), absl::StatusCode::kInvalidArgument);
  const auto first = Add(kAda, 500);
  ASSERT_TRUE(first.ok());
  full(Add(kAda, 101), "max_region_bytes_per_owner");
  ASSERT_TRUE(Add(kBob, 450).ok());
  full(Add(kBob, 51), "max_region_bytes");
  ASSERT_TRUE(Add(kBob, 1).ok());
  ASSERT_TRUE(Add(kBob, 1).ok());
  full(Add(kBob, 1), "max_regions_per_owner");
  full(Add(kAda, 1), "max_regions");
  EXPECT_TRUE(registry_.Release(kAda, first->name).ok());
}

TEST_F(RegionRegistryTest, FailedMakersGiveTheirShareBack) {
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(registry_
                  .Add(kAda, RegionKind::kMemfd, 600, false,
                       [] { return absl::InternalError("no"); })
                  .status()
                  .code(),
              absl::StatusCode::kInternal);
  }
  EXPECT_TRUE(Add(kAda, 600).ok());
}

TEST_F(RegionRegistryTest, OwnersHaveToBeHardToGuess) {
  for (const std::string& owner :
       {std::string(), std::string(31, 'x'), std::string(129, 'x'),
        std::string(31, 'x') + '\n'}) {
    const auto added = Add(owner, 10);
    EXPECT_EQ(added.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(server::DetailOf(added.status())->field(), "attendant-owner");
  }
}

TEST_F(RegionRegistryTest, UnusedRegionsExpireUsedOnesDoNot) {
  const std::string idle = Add(kAda, 10, true)->name;
  const std::string used = Add(kAda, 10, true)->name;
  RegionEntry held = *Add(kAda, 10, true);
  const std::string kept = Add(kBob, 10, false)->name;
  now_ += std::chrono::seconds(40);
  EXPECT_TRUE(registry_.Find(kAda, used, "").ok());
  now_ += std::chrono::seconds(40);
  EXPECT_EQ(registry_.List(kAda).size(), 2u);
  EXPECT_FALSE(registry_.Find(kAda, idle, "").ok());
  EXPECT_TRUE(registry_.Find(kAda, held.name, "").ok());
  EXPECT_TRUE(registry_.Find(kBob, kept, "").ok());
  EXPECT_EQ(alive_, 3);
}

TEST_F(RegionRegistryTest, EightThreadsMakeUseAndRelease) {
  constexpr int kRounds = 500;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([this, t] {
      const std::string owner(32, static_cast<char>('a' + t % 4));
      for (int i = 0; i < kRounds; ++i) {
        const auto made = Add(owner, 50);
        for (const RegionEntry& entry : registry_.List(owner)) {
          const auto found = registry_.Find(owner, entry.name, "");
          std::byte byte{};
          if (found.ok()) (void)found->memory->Read(49, 1, &byte);
        }
        if (made.ok()) (void)registry_.Release(owner, made->name);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(alive_, 0);
  EXPECT_EQ(CountedBytes(), 0);
}

}  // namespace
}  // namespace attendant::testing
