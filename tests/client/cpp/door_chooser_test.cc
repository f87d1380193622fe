#include "client/cpp/door_chooser.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace attendant::client {
namespace {

const std::vector<std::string> kAll = {"unary", "stream", "striped", "shm",
                                       "ipc"};

TEST(DoorChooser, TakesTheNearestRoad) {
  constexpr int64_t kLarge = int64_t{96} << 20;
  EXPECT_EQ(ChooseDoor({true, true, kLarge, kAll}), "ipc");
  EXPECT_EQ(ChooseDoor({true, false, kLarge, kAll}), "shm");
  EXPECT_EQ(ChooseDoor({true, false, 1, kAll}), "shm");
  EXPECT_EQ(ChooseDoor({false, false, kLarge, kAll}), "striped");
  EXPECT_EQ(ChooseDoor({false, true, kLarge, kAll}), "striped");
  EXPECT_EQ(ChooseDoor({false, false, int64_t{8} << 20, kAll}), "stream");
  EXPECT_EQ(ChooseDoor({false, false, 1 << 20, kAll}), "unary");
}

TEST(DoorChooser, TakesOnlyWhatIsOffered) {
  constexpr int64_t kLarge = int64_t{96} << 20;
  EXPECT_EQ(ChooseDoor({true, true, kLarge, {"unary"}}), "unary");
  EXPECT_EQ(ChooseDoor({true, true, kLarge, {"unary", "stream"}}), "stream");
  EXPECT_EQ(ChooseDoor({true, true, kLarge, {"unary", "shm"}}), "shm");
}

TEST(DoorChooser, KnowsThisMachine) {
  char own[256] = {};
  ASSERT_EQ(gethostname(own, sizeof(own) - 1), 0);
  for (const std::string& target :
       {std::string("localhost:1"), std::string("127.0.0.1:1"),
        std::string("127.1.2.3:1"), std::string("[::1]:1"),
        std::string("unix:/tmp/x"), std::string("unix-abstract:x"),
        std::string("ipv4:127.0.0.1:5"), std::string("dns:///localhost:5"),
        std::string(own) + ":50051"}) {
    EXPECT_TRUE(IsSameHost(target)) << target;
  }
  for (const char* target : {"192.0.2.1:1", "elsewhere.example:1",
                             "dns:///192.0.2.1:1", "[2001:db8::1]:1"}) {
    EXPECT_FALSE(IsSameHost(target)) << target;
  }
}

}  // namespace
}  // namespace attendant::client
