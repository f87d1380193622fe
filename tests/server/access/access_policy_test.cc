#include "server/access/access_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/request/errors.h"

namespace attendant::server {
namespace {

using ::testing::HasSubstr;

// sha256 of "alpha-token" and of "beta-token".
constexpr char kPolicy[] = R"({
  "anonymous": {"methods": ["GetServerInfo"]},
  "identities": [
    {"name": "alpha", "methods": ["*"], "max_priority": 10, "weight": 2,
     "token_sha256":
       "c84f000000000000000000000000000000000000000000000000000000000000"},
    {"name": "beta", "methods": ["Attend"], "certificate_name": "beta.x"}]})";

std::shared_ptr<const AccessPolicy> Parsed(const std::string& text) {
  const auto policy = AccessPolicy::Parse(text, "policy.json");
  EXPECT_TRUE(policy.ok()) << policy.status();
  return policy.ok() ? *policy : nullptr;
}

std::string ErrorOf(const std::string& text) {
  return std::string(
      AccessPolicy::Parse(text, "policy.json").status().message());
}

// kPolicy with the digest of `token` for alpha.
std::string PolicyWith(const std::string& digest) {
  std::string text = kPolicy;
  const size_t at = text.find("c84f");
  return text.replace(at, 64, digest);
}

constexpr char kAlphaDigest[] =
    "a336d9b1d8b8647875238537ca5087b0ea335afd2032936aecdffc3e4b13f720";

TEST(AccessPolicyTest, OpenLetsEverybodyDoEverything) {
  const auto identity = AccessPolicy::Open()->Decide({}, "Attend");
  ASSERT_TRUE(identity.ok());
  EXPECT_EQ((*identity)->name, "anonymous");
  EXPECT_EQ((*identity)->max_priority, 100);
  // A token that nobody asked for harms nobody.
  EXPECT_TRUE(AccessPolicy::Open()->Decide({"x", {}}, "Attend").ok());
}

TEST(AccessPolicyTest, ATokenIsKnownByItsDigest) {
  const auto policy = Parsed(PolicyWith(kAlphaDigest));
  const auto alpha = policy->Decide({"alpha-token", {}}, "Attend");
  ASSERT_TRUE(alpha.ok()) << alpha.status();
  EXPECT_EQ((*alpha)->name, "alpha");
  EXPECT_EQ((*alpha)->max_priority, 10);
  EXPECT_EQ((*alpha)->weight, 2);
  for (const char* wrong : {"alpha-toke", "alpha-token ", "Bearer", "c84f"}) {
    EXPECT_EQ(policy->Decide({wrong, {}}, "GetServerInfo").status().code(),
              absl::StatusCode::kUnauthenticated)
        << wrong;
  }
}

TEST(AccessPolicyTest, ACertificateIsKnownByAnyOfItsNames) {
  const auto policy = Parsed(kPolicy);
  const auto beta = policy->Decide({"", {"other", "beta.x"}}, "Attend");
  ASSERT_TRUE(beta.ok()) << beta.status();
  EXPECT_EQ((*beta)->name, "beta");
  // One that the policy does not name is anonymous.
  EXPECT_TRUE(policy->Decide({"", {"gamma.x"}}, "GetServerInfo").ok());
  EXPECT_EQ(policy->Decide({"", {"gamma.x"}}, "Attend").status().code(),
            absl::StatusCode::kPermissionDenied);
}

TEST(AccessPolicyTest, AMethodThatIsNotListedIsDenied) {
  const auto policy = Parsed(kPolicy);
  const absl::Status status =
      policy->Decide({"", {"beta.x"}}, "GetServerInfo").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(DetailOf(status)->field(), "method");
  EXPECT_TRUE(policy->Decide({}, "GetServerInfo").ok());
}

TEST(AccessPolicyTest, WithoutAnonymousSomethingMustBeShown) {
  const auto policy = Parsed(R"({"identities": [{"name": "beta",
      "methods": ["*"], "certificate_name": "beta.x"}]})");
  const absl::Status status = policy->Decide({}, "Attend").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(DetailOf(status)->field(), "authorization");
  EXPECT_TRUE(policy->Decide({"", {"beta.x"}}, "Attend").ok());
}

TEST(AccessPolicyTest, ErrorsNamePlaceFieldValueAndBound) {
  EXPECT_THAT(ErrorOf("{"), HasSubstr("policy.json: the file is no JSON"));
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("policy is [], must be an object"));
  EXPECT_THAT(ErrorOf(R"({"identity": []})"),
              HasSubstr("policy.identity is [], must be absent"));
  EXPECT_THAT(ErrorOf(R"({"anonymous": {}})"),
              HasSubstr("anonymous.methods is [], must be a list"));
  EXPECT_THAT(
      ErrorOf(R"({"anonymous": {"methods": ["*"], "weight": 0}})"),
      HasSubstr("anonymous.weight is 0, must be a number, 0.001..1000"));
  EXPECT_THAT(ErrorOf(R"({"anonymous": {"methods": ["*"], "weight": 1e-320}})"),
              HasSubstr("must be a number, 0.001..1000"));
  EXPECT_THAT(
      ErrorOf(R"({"anonymous": {"methods": ["*"], "queue_share": 1.5}})"),
      HasSubstr("anonymous.queue_share is 1.5, must be a number above 0"));
  EXPECT_THAT(
      ErrorOf(R"({"anonymous": {"methods": ["*"], "max_priority": 101}})"),
      HasSubstr("anonymous.max_priority is 101, must be an integer"));
  const auto one = [](const std::string& body) {
    return ErrorOf(R"({"identities": [{)" + body + "}]}");
  };
  EXPECT_THAT(one(R"("name": "a b", "methods": ["*"])"),
              HasSubstr("identities[0].name is a b, must be 1 to 64"));
  EXPECT_THAT(one(R"("name": "anonymous", "methods": ["*"])"),
              HasSubstr("that no other has"));
  EXPECT_THAT(one(R"("name": "a", "methods": ["*"])"),
              HasSubstr("identities[0] is without credentials"));
  EXPECT_THAT(one(R"("name": "a", "methods": [3], "certificate_name": "x")"),
              HasSubstr("identities[0].methods is 3, must be text"));
  EXPECT_THAT(one(R"("name": "a", "methods": ["*"], "token": "secret")"),
              HasSubstr("identities[0].token is \"secret\", must be absent"));
  EXPECT_THAT(one(R"("name": "a", "methods": ["*"], "token_sha256": "12")"),
              HasSubstr("token_sha256 is 2 characters, must be 64"));
  EXPECT_THAT(one(R"("name": 7, "methods": ["*"])"),
              HasSubstr("identities[0].name is 7, must be text"));
  EXPECT_THAT(
      ErrorOf(R"({"anonymous": {"methods": ["*"],
                 "max_priority": 18446744073709551615}})"),
      HasSubstr("max_priority is 18446744073709551615, must be an integer"));
}

TEST(AccessPolicyTest, WhatTwoIdentitiesShowIsAnError) {
  const std::string digest(64, 'a'), upper(64, 'A');
  const auto two = [](const std::string& a, const std::string& b) {
    return ErrorOf(R"({"identities": [{"name": "a", "methods": ["*"], )" + a +
                   R"(}, {"name": "b", "methods": ["Attend"], )" + b + "}]}");
  };
  EXPECT_THAT(two(R"("token_sha256": ")" + digest + '"',
                  R"("token_sha256": ")" + upper + '"'),
              HasSubstr("identities[1].token_sha256 is given twice"));
  EXPECT_THAT(
      two(R"("certificate_name": "x.y")", R"("certificate_name": "x.y")"),
      HasSubstr("identities[1].certificate_name is x.y, must be one that no"));
}

}  // namespace
}  // namespace attendant::server
