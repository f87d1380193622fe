#include "client/cpp/door.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <vector>

#include "tests/client/cpp/fake_server.h"

namespace attendant::client {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

TEST(Door, UnaryAnswersAsTheClientDoes) {
  FakeServer server(EchoQ);
  auto door = OpenDoor("unary", server.target(), {});
  ASSERT_TRUE(door.ok()) << door.status();
  EXPECT_EQ((*door)->name(), "unary");
  EXPECT_FALSE((*door)->capabilities().same_host_only);
  const std::vector<float> numbers = {1, 2, 3, 4};
  AttendArgs args;
  for (TensorView* view : {&args.q, &args.k, &args.v}) {
    *view = {numbers.data(), DataType::kFloat32, {1, 2, 1, 2}, {}};
  }
  std::vector<std::byte> out(16);
  args.out = out;
  const auto prepared = (*door)->Prepare(args);
  ASSERT_TRUE(prepared.ok());
  const auto answer = (*door)->Attend(*prepared, std::chrono::seconds(10));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(std::memcmp(out.data(), numbers.data(), 16), 0);
}

TEST(Door, SaysPlainlyWhatThisBuildHasNot) {
  for (const DoorRow& row : DoorRows()) {
    const auto door = OpenDoor(row.name, "localhost:1", {});
    if (door.ok()) continue;
    EXPECT_THAT(door.status().code(), AnyOf(absl::StatusCode::kUnimplemented,
                                            absl::StatusCode::kUnavailable))
        << row.name;
    EXPECT_THAT(std::string(door.status().message()), HasSubstr(row.name));
  }
  const auto door = OpenDoor("back", "localhost:1", {});
  EXPECT_EQ(door.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(GetErrorDetail(door.status())->value, "back");
}

}  // namespace
}  // namespace attendant::client
