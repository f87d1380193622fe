#include "client/cpp/retry_policy.h"

#include <gtest/gtest.h>

namespace attendant::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kAnHour{3600};

TEST(RetryPolicy, BacksOffExponentiallyByChance) {
  const FailedCall call{absl::UnavailableError("x"), {}};
  EXPECT_EQ(RetryDelay({}, call, 1, 0.5, kAnHour), milliseconds(50));
  EXPECT_EQ(RetryDelay({}, call, 2, 0.5, kAnHour), milliseconds(100));
  EXPECT_EQ(RetryDelay({}, call, 3, 0.0, kAnHour), milliseconds(0));
  const RetryOptions many{100, milliseconds(100), milliseconds(5000)};
  EXPECT_EQ(RetryDelay(many, call, 60, 0.5, kAnHour), milliseconds(2500));
}

TEST(RetryPolicy, StopsAfterTheLastAttempt) {
  const FailedCall call{absl::UnavailableError("x"), {}};
  EXPECT_TRUE(RetryDelay({}, call, 4, 0.5, kAnHour).has_value());
  EXPECT_FALSE(RetryDelay({}, call, 5, 0.5, kAnHour).has_value());
}

TEST(RetryPolicy, RepeatsOnlyWhatMaySucceedLater) {
  for (const absl::Status& status :
       {absl::InvalidArgumentError("x"), absl::UnimplementedError("x"),
        absl::DeadlineExceededError("x"), absl::CancelledError("x"),
        absl::InternalError("x"), absl::PermissionDeniedError("x"),
        absl::ResourceExhaustedError(
            "Received message larger than max (9 vs. 4)")}) {
    EXPECT_FALSE(RetryDelay({}, {status, {}}, 1, 0.5, kAnHour).has_value())
        << status;
  }
  EXPECT_TRUE(
      RetryDelay({}, {absl::ResourceExhaustedError("queue"), {}}, 1, 0, kAnHour)
          .has_value());
}

TEST(RetryPolicy, HonoursPushback) {
  const absl::Status full = absl::ResourceExhaustedError("full");
  EXPECT_EQ(RetryDelay({}, {full, "250"}, 1, 0.0, kAnHour), milliseconds(250));
  EXPECT_EQ(RetryDelay({}, {full, "250"}, 3, 1.0, kAnHour), milliseconds(275));
  EXPECT_FALSE(RetryDelay({}, {full, "-1"}, 1, 0.5, kAnHour).has_value());
  EXPECT_FALSE(RetryDelay({}, {full, "soon"}, 1, 0.5, kAnHour).has_value());
  EXPECT_FALSE(RetryDelay({}, {full, "99999999999999999999"}, 1, 0, kAnHour)
                   .has_value());
}

TEST(RetryPolicy, NeverWaitsBeyondTheDeadline) {
  const absl::Status full = absl::ResourceExhaustedError("full");
  EXPECT_FALSE(
      RetryDelay({}, {full, "1000"}, 1, 0.0, milliseconds(1000)).has_value());
  EXPECT_TRUE(
      RetryDelay({}, {full, "1000"}, 1, 0.0, milliseconds(1001)).has_value());
  EXPECT_FALSE(RetryDelay({}, {full, "9223372036854775807"}, 1, 0.9, kAnHour)
                   .has_value());
}

}  // namespace
}  // namespace attendant::client
