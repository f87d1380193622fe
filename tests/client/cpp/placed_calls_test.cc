#include "client/cpp/placed_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

namespace attendant::client {
namespace {

using std::chrono::steady_clock;
using ::testing::HasSubstr;

class HeapMemory final : public DoorMemory {
 public:
  explicit HeapMemory(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
    range_.data = bytes_.data();
    range_.bytes = bytes;
  }
  const SharedRange& range() const override { return range_; }

 private:
  std::vector<std::byte> bytes_;
  SharedRange range_;
};

class PlacedCallsTest : public ::testing::Test {
 protected:
  PlacedCallsTest() {
    args_.q = args_.k =
        args_.v = {values_.data(), DataType::kFloat32, {1, 2, 1, 4}, {}};
  }

  const std::vector<float> values_ = std::vector<float>(8, 1.0f);
  AttendArgs args_;
};

TEST_F(PlacedCallsTest, MemoryIsMadeByTheDeadlineOfItsCall) {
  const auto end = steady_clock::now() + std::chrono::hours(1);
  steady_clock::time_point seen;
  PlacedCalls calls([&](int64_t bytes, PlacedCalls::Deadline deadline) {
    seen = deadline;
    return std::make_unique<HeapMemory>(bytes);
  });
  int sent = 0;
  const auto result = calls.Attend(args_, end, [&](const AttendArgs& placed) {
    ++sent;
    EXPECT_EQ(std::memcmp(placed.q.data, values_.data(), 32), 0);
    return absl::InternalError("as it comes");
  });
  EXPECT_TRUE(absl::IsInternal(result.status())) << result.status();
  EXPECT_EQ(sent, 1);
  EXPECT_EQ(seen, end);
}

TEST_F(PlacedCallsTest, NothingIsSentAfterTheDeadline) {
  const auto past = steady_clock::now() - std::chrono::seconds(1);
  const auto call = [](const AttendArgs&) -> absl::StatusOr<AttendResult> {
    ADD_FAILURE();
    return absl::InternalError("sent");
  };
  PlacedCalls slow([](int64_t bytes, PlacedCalls::Deadline) {
    return std::make_unique<HeapMemory>(bytes);
  });
  absl::Status status = slow.Attend(args_, past, call).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  PlacedCalls silent(
      [](int64_t,
         PlacedCalls::Deadline) -> absl::StatusOr<std::unique_ptr<DoorMemory>> {
        return absl::UnavailableError("no answer");
      });
  status = silent.Attend(args_, past, call).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("no answer"));
}

}  // namespace
}  // namespace attendant::client
