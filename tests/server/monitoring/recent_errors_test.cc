#include "server/monitoring/recent_errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attendant::server {
namespace {

RecentError Error(const std::string& request_id) {
  RecentError error;
  error.request_id = request_id;
  return error;
}

TEST(RecentErrors, NewestComesFirst) {
  RecentErrors errors;
  EXPECT_TRUE(errors.NewestFirst().empty());
  errors.Add(Error("a"));
  errors.Add(Error("b"));
  ASSERT_EQ(errors.NewestFirst().size(), 2u);
  EXPECT_EQ(errors.NewestFirst()[0].request_id, "b");
}

TEST(RecentErrors, OldestIsForgotten) {
  RecentErrors errors;
  for (size_t i = 0; i <= RecentErrors::kCapacity; ++i) {
    errors.Add(Error(std::to_string(i)));
  }
  const std::vector<RecentError> left = errors.NewestFirst();
  ASSERT_EQ(left.size(), RecentErrors::kCapacity);
  EXPECT_EQ(left.back().request_id, "1");
}

TEST(RecentErrors, LongMessagesAreCut) {
  RecentErrors errors;
  RecentError error;
  error.message = std::string(RecentErrors::kMaxMessage, 'x');
  errors.Add(error);
  EXPECT_EQ(errors.NewestFirst()[0].message, error.message);
  error.message += 'x';
  errors.Add(error);
  EXPECT_EQ(errors.NewestFirst()[0].message.size(), RecentErrors::kMaxMessage);
  EXPECT_THAT(errors.NewestFirst()[0].message, ::testing::EndsWith("x..."));
}

}  // namespace
}  // namespace attendant::server
