#include "server/calls/upload_slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "server/request/errors.h"

namespace attendant::server {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const Identity> Named(const std::string& name,
                                      double weight = 1,
                                      const std::string& method = "*") {
  auto identity = std::make_shared<Identity>();
  identity->name = name;
  identity->weight = weight;
  identity->methods = {method};
  return identity;
}

// How many places `identity` gets, of those that are left.
int64_t Fill(UploadSlots* slots, const std::string& identity) {
  int64_t count = 0;
  while (slots->Take(identity).ok()) ++count;
  return count;
}

void Empty(UploadSlots* slots, const std::string& identity, int64_t count) {
  for (; count > 0; --count) slots->Release(identity);
}

TEST(UploadSlots, WithoutAPolicyWhoComesFirstMayHaveAll) {
  UploadSlots slots(8);
  EXPECT_EQ(Fill(&slots, ""), 8);
  const absl::Status refused = slots.Take("");
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_THAT(refused.message(), HasSubstr("at most 8"));
  EXPECT_GE(RetryPushbackMs(refused), 0);
  slots.Release("");
  EXPECT_TRUE(slots.Take("").ok());
}

TEST(UploadSlots, OneIdentityAloneMayHaveAll) {
  UploadSlots slots(8);
  slots.SetIdentities({Named("anonymous")});
  EXPECT_EQ(Fill(&slots, "anonymous"), 8);
}

TEST(UploadSlots, AGreedyOneLeavesWhatOthersAreDue) {
  UploadSlots slots(64);
  slots.SetIdentities({Named("greedy"), Named("a"), Named("b", 2)});
  // Half are kept: 8 for each of weight 1, 16 for the one of weight 2.
  EXPECT_EQ(Fill(&slots, "greedy"), 64 - 8 - 16);
  const absl::Status refused = slots.Take("greedy");
  EXPECT_THAT(refused.message(), HasSubstr("greedy"));
  EXPECT_THAT(refused.message(), HasSubstr("24 are kept for others"));
  EXPECT_EQ(Fill(&slots, "a"), 8);
  EXPECT_EQ(Fill(&slots, "b"), 16);
  EXPECT_EQ(slots.taken(), 64);
}

TEST(UploadSlots, WhatIsGivenBackGoesToWhoIsDueAndElseToAnyone) {
  UploadSlots slots(16);
  slots.SetIdentities({Named("greedy"), Named("modest")});
  ASSERT_EQ(Fill(&slots, "greedy"), 12);
  ASSERT_EQ(Fill(&slots, "modest"), 4);
  slots.Release("modest");
  EXPECT_FALSE(slots.Take("greedy").ok());
  EXPECT_TRUE(slots.Take("modest").ok());
  slots.Release("greedy");
  EXPECT_TRUE(slots.Take("modest").ok());  // an idle one, beyond its own
  Empty(&slots, "modest", 5);
  EXPECT_EQ(Fill(&slots, "greedy"), 1);
}

TEST(UploadSlots, MoreIdentitiesThanTheHalfStillHaveOneEach) {
  UploadSlots slots(8);
  std::vector<std::shared_ptr<const Identity>> identities;
  for (int i = 0; i < 8; ++i) identities.push_back(Named(std::to_string(i)));
  slots.SetIdentities(identities);
  EXPECT_EQ(Fill(&slots, "0"), 1);
  for (int i = 1; i < 8; ++i) EXPECT_TRUE(slots.Take(std::to_string(i)).ok());
}

TEST(UploadSlots, FewerPlacesThanIdentitiesAreWhosesComesFirst) {
  UploadSlots slots(1);
  slots.SetIdentities({Named("a"), Named("b")});
  EXPECT_EQ(Fill(&slots, "a"), 1);
  EXPECT_FALSE(slots.Take("b").ok());
  slots.Release("a");
  EXPECT_EQ(Fill(&slots, "b"), 1);
}

TEST(UploadSlots, NothingIsKeptForWhoMaySendNoTensors) {
  UploadSlots slots(8);
  slots.SetIdentities({Named("a"), Named("monitor", 9, "GetServerInfo")});
  EXPECT_EQ(Fill(&slots, "a"), 8);
}

TEST(UploadSlots, ANewPolicyFindsWhatIsHeld) {
  UploadSlots slots(16);
  slots.SetIdentities({Named("old"), Named("stays")});
  ASSERT_EQ(Fill(&slots, "old"), 12);
  slots.SetIdentities({Named("stays"), Named("new")});
  EXPECT_EQ(Fill(&slots, "stays"), 0 + 4);
  EXPECT_FALSE(slots.Take("new").ok());  // until the old ones end
  slots.Release("old");
  EXPECT_FALSE(slots.Take("stays").ok());
  EXPECT_TRUE(slots.Take("new").ok());
  Empty(&slots, "old", 11);
  Empty(&slots, "new", 1);
  EXPECT_EQ(Fill(&slots, "stays"), 8);
  EXPECT_EQ(Fill(&slots, "new"), 4);
}

TEST(UploadPlace, IsGivenBackOnce) {
  UploadSlots slots(1);
  {
    UploadPlace place;
    ASSERT_TRUE(place.Take(&slots, "").ok());
    EXPECT_EQ(slots.taken(), 1);
    {
      std::jthread other([&] { place.Release(); });
      place.Release();
    }
    EXPECT_EQ(slots.taken(), 0);
    UploadPlace another;
    EXPECT_TRUE(another.Take(&slots, "").ok());
    UploadPlace refused;
    EXPECT_FALSE(refused.Take(&slots, "").ok());
  }
  EXPECT_EQ(slots.taken(), 0);
}

}  // namespace
}  // namespace attendant::server
