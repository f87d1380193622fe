#include "client/cpp/server_list.h"

#include <gtest/gtest.h>

#include <memory>

#include "client/cpp/door.h"
#include "tests/client/cpp/echo_input.h"
#include "tests/client/cpp/fake_server.h"

namespace attendant::client {
namespace {

TEST(ServerList, AListIsToldByItsScheme) {
  EXPECT_EQ(*GrpcTarget("10.0.0.1:5,10.0.0.2:6"), "ipv4:10.0.0.1:5,10.0.0.2:6");
  EXPECT_EQ(*GrpcTarget("[::1]:5,[fd00::2]:6"), "ipv6:[::1]:5,[fd00::2]:6");
  EXPECT_EQ(*GrpcTarget("localhost:5,localhost:6"),
            "ipv4:127.0.0.1:5,127.0.0.1:6");
}

TEST(ServerList, EveryOtherTargetStaysAsItIs) {
  for (const char* target : {"gpu7:50051", "dns:///gpu:50051", "unix:/run/a,b",
                             "ipv4:10.0.0.1:5,10.0.0.2:6", "[::1]:5"}) {
    EXPECT_EQ(*GrpcTarget(target), target);
    EXPECT_FALSE(IsBalanced(target, {}));
    EXPECT_TRUE(IsBalanced(target, {.balance = true}));
  }
  EXPECT_TRUE(IsBalanced("10.0.0.1:5,10.0.0.2:6", {}));
}

TEST(ServerList, NamesAndMixturesAreRefusedByName) {
  for (const char* target :
       {"gpu1:5,gpu2:5", "10.0.0.1:5,gpu2:5", "10.0.0.1:5,[::1]:5",
        "10.0.0.1:5,", ",", "10.0.0.1,10.0.0.2", "::1:5,::2:5"}) {
    const auto told = GrpcTarget(target);
    ASSERT_FALSE(told.ok()) << target << *told;
    EXPECT_EQ(GetErrorDetail(told.status())->field, "target");
  }
}

TEST(ServerList, DoorsOfOneServerAreRefused) {
  const std::string list = "127.0.0.1:1,127.0.0.1:2";
  for (const char* door : {"striped", "shm", "ipc"}) {
    const auto opened = OpenDoor(door, list, {});
    ASSERT_FALSE(opened.ok()) << door;
    EXPECT_EQ(GetErrorDetail(opened.status())->field, "door");
  }
  for (const char* door : {"unary", "stream", "auto"}) {
    EXPECT_TRUE(OpenDoor(door, list, {}).ok()) << door;
  }
}

TEST(ServerList, ServersOfAListTakeCallsInTurnAndOneMayGo) {
  FakeServer first(EchoQ);
  auto second = std::make_unique<FakeServer>(EchoQ);
  const auto door =
      OpenDoor("auto", first.target() + "," + second->target(), {});
  ASSERT_TRUE(door.ok()) << door.status();
  const Input input;
  while (first.calls() == 0 || second->calls() == 0) {
    ASSERT_TRUE((*door)->Attend(input.args, kPatient).ok());
  }
  second.reset();
  for (int i = 0; i < 10; ++i) {
    const auto result = (*door)->Attend(input.args, kPatient);
    ASSERT_TRUE(result.ok()) << result.status();
  }
}

}  // namespace
}  // namespace attendant::client
