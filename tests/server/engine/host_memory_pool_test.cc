#include "server/engine/host_memory_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace attendant::server {
namespace {

TEST(HostMemoryPoolTest, BlocksAreAlignedAndWritable) {
  auto pool = CreatePlainHostPool(1 << 20);
  ASSERT_TRUE(pool.ok()) << pool.status();
  auto a = (*pool)->Allocate(1000), b = (*pool)->Allocate(5000);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b->data()) % 256, 0u);
  std::memset(a->data(), 1, 1000);
  std::memset(b->data(), 2, 5000);
  EXPECT_EQ(static_cast<int>(a->data()[999]), 1);
  EXPECT_EQ(b->bytes(), 5000);
  EXPECT_EQ((*pool)->used_bytes(), 1024 + 5120);
}

TEST(HostMemoryPoolTest, SaysWhatIsLeftWhenItIsFull) {
  auto pool = CreatePlainHostPool(4096);
  auto all = (*pool)->Allocate(4096);
  ASSERT_TRUE(all.ok());
  const auto more = (*pool)->Allocate(1);
  EXPECT_EQ(more.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(more.status().message()).find("4096 of 4096"),
            std::string::npos)
      << more.status();
  *all = HostBlock();
  EXPECT_TRUE((*pool)->Allocate(1).ok());
}

TEST(HostMemoryPoolTest, ZeroBytesTakeNothing) {
  auto pool = CreatePlainHostPool(4096);
  auto all = (*pool)->Allocate(4096), none = (*pool)->Allocate(0);
  ASSERT_TRUE(all.ok() && none.ok());
  EXPECT_EQ(none->bytes(), 0);
}

TEST(HostMemoryPoolTest, AScrubbedPoolShowsNothingOfItsLastUser) {
  for (const bool scrub : {true, false}) {
    auto memory = std::make_shared<std::vector<std::byte>>(4096);
    std::byte* data = memory->data();
    const auto pool = MakeHostPool(data, 4096, memory, scrub);
    {
      auto block = pool->Allocate(1000);
      ASSERT_TRUE(block.ok());
      std::memset(block->data(), 0x5e, 1000);
    }
    const bool shows =
        std::any_of(memory->begin(), memory->end(),
                    [](std::byte b) { return b != std::byte{0}; });
    EXPECT_EQ(shows, !scrub);
  }
}

// What the system notes of the mapping that `address` lies in; empty if it says
// nothing.
std::string FlagsOfMapping(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream range(line);
    if (range >> std::hex >> begin >> dash >> end && dash == '-') {
      const auto at = reinterpret_cast<uintptr_t>(address);
      inside = begin <= at && at < end;
    } else if (inside && line.starts_with("VmFlags:")) {
      return line + " ";
    }
  }
  return "";
}

TEST(HostMemoryPoolTest, AsksForHugePages) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) {
    GTEST_SKIP() << "this system has no huge pages to ask for";
  }
  auto pool = CreatePlainHostPool(8 << 20);
  auto block = (*pool)->Allocate(8 << 20);
  ASSERT_TRUE(block.ok());
  const std::string flags = FlagsOfMapping(block->data());
  if (flags.empty()) GTEST_SKIP() << "this system says nothing of mappings";
  EXPECT_NE(flags.find(" hg "), std::string::npos) << flags;
}

TEST(HostMemoryPoolTest, ABlockMayOutliveThePool) {
  auto memory = std::make_shared<std::vector<std::byte>>(4096);
  const std::weak_ptr<void> alive = memory;
  std::byte* data = memory->data();
  auto pool = MakeHostPool(data, 4096, std::move(memory));
  auto block = pool->Allocate(100);
  ASSERT_TRUE(block.ok());
  pool.reset();
  ASSERT_FALSE(alive.expired());
  std::memset(block->data(), 7, 100);
  *block = HostBlock();
  EXPECT_TRUE(alive.expired());
}

}  // namespace
}  // namespace attendant::server
