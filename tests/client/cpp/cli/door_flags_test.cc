#include "client/cpp/cli/door_flags.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace attendant::client::cli {
namespace {

TEST(DoorFlags, AutoIsADoorOfThisBuild) {
  const std::vector<std::string> built = DoorsOfThisBuild();
  for (const int64_t bytes : {int64_t{1}, int64_t{1} << 22, int64_t{1} << 30}) {
    for (const char* target : {"localhost:1", "192.0.2.1:1"}) {
      const std::string door = ResolveDoor("auto", target, {}, bytes);
      EXPECT_NE(std::find(built.begin(), built.end(), door), built.end())
          << door;
    }
  }
  EXPECT_EQ(ResolveDoor("ipc", "192.0.2.1:1", {}, 1), "ipc");
}

TEST(DoorFlags, AutoReachesOneServerByOneStreamWhereSeveralShareTheCalls) {
  constexpr int64_t kLarge = int64_t{1} << 30;
  EXPECT_EQ(ResolveDoor("auto", "192.0.2.1:1", {}, kLarge), "striped");
  EXPECT_EQ(ResolveDoor("auto", "192.0.2.1:1", {.balance = true}, kLarge),
            "stream");
  EXPECT_EQ(ResolveDoor("auto", "127.0.0.1:1,127.0.0.1:2", {}, kLarge),
            "stream");
}

TEST(DoorFlags, EveryDoorMayBeAskedFor) {
  for (const DoorRow& row : DoorRows()) {
    EXPECT_TRUE(CheckDoorName(row.name).ok());
    EXPECT_NE(std::string(DoorFlags()[0].value).find(row.name),
              std::string::npos);
  }
  EXPECT_TRUE(CheckDoorName("auto").ok());
  EXPECT_FALSE(CheckDoorName("").ok());
}

TEST(DoorFlags, CountsTheBytesOfTheTensors) {
  AttendArgs args;
  EXPECT_EQ(TensorBytesOf(args), 0);
  args.q = {nullptr, DataType::kFloat16, {1, 2, 3, 4}, {}};
  args.k = args.v = {nullptr, DataType::kFloat32, {1, 5, 1, 1}, {}};
  EXPECT_EQ(TensorBytesOf(args), 48 + 2 * 20);
}

}  // namespace
}  // namespace attendant::client::cli
