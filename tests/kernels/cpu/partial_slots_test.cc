#include "kernels/cpu/partial_slots.h"

#include <gtest/gtest.h>

#include <vector>

namespace attendant::kernels::cpu {
namespace {

TEST(PartialSlotsTest, GroupKeepsItsSlotUntilReleased) {
  std::vector<float> memory(20);
  PartialSlots slots(memory.data(), 10, 2);
  float* const first = slots.Enter(7, 2);
  EXPECT_EQ(slots.Enter(7, 2), first);
  float* const second = slots.Enter(9, 1);
  EXPECT_NE(second, first);
  EXPECT_FALSE(slots.Leave(7));
  EXPECT_TRUE(slots.Leave(7));
  slots.Release(7);
  EXPECT_EQ(slots.Enter(11, 1), first);
  EXPECT_TRUE(slots.Leave(9));
  EXPECT_TRUE(slots.Leave(11));
}

TEST(PartialSlotsDeathTest, OneSlotTooFewIsOurOwnBug) {
  std::vector<float> memory(10);
  PartialSlots slots(memory.data(), 10, 1);
  slots.Enter(1, 2);
  EXPECT_DEATH(slots.Enter(2, 2), "free_");
}

}  // namespace
}  // namespace attendant::kernels::cpu
