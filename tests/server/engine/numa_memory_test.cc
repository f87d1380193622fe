#include "server/engine/numa_memory.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace attendant::testing {
namespace {

int PolicyOfThisThread() {
  int mode = -1;
  return syscall(SYS_get_mempolicy, &mode, nullptr, 0, nullptr, 0) == 0 ? mode
                                                                        : -1;
}

TEST(NumaMemory, TheNodeIsReadOfTheDevice) {
  const std::string root = ::testing::TempDir() + "numa_memory";
  std::filesystem::create_directories(root + "/0000:1a:00.0");
  std::ofstream(root + "/0000:1a:00.0/numa_node") << "3\n";
  EXPECT_EQ(server::NumaNodeOfPciDevice("0000:1A:00.0", root), 3);
  EXPECT_EQ(server::NumaNodeOfPciDevice("0000:1b:00.0", root), -1);
}

TEST(NumaMemory, ThePreferenceEndsWithItsScope) {
  const int before = PolicyOfThisThread();
  {
    const server::PreferNumaNode prefer(0);
    if (!prefer.active()) GTEST_SKIP() << "no NUMA policies here";
    EXPECT_EQ(PolicyOfThisThread(), MPOL_PREFERRED);
  }
  EXPECT_EQ(PolicyOfThisThread(), before);
}

TEST(NumaMemory, WithoutANodeNothingIsAsked) {
  EXPECT_FALSE(server::PreferNumaNode(-1).active());
}

}  // namespace
}  // namespace attendant::testing
