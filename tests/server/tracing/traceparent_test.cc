#include "server/tracing/traceparent.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace attendant::testing {
namespace {

using server::ParseTraceParent;

constexpr char kTrace[] = "0af7651916cd43dd8448eb211c80319c";
constexpr char kParent[] = "b7ad6b7169203331";

std::string Header(const std::string& version, const std::string& trace,
                   const std::string& parent, const std::string& flags) {
  return version + "-" + trace + "-" + parent + "-" + flags;
}

TEST(TraceParent, ReadsAndWritesWhatW3cWrites) {
  const std::string text = Header("00", kTrace, kParent, "01");
  const auto parent = ParseTraceParent(text);
  ASSERT_TRUE(parent.has_value());
  EXPECT_EQ(parent->trace_id, kTrace);
  EXPECT_EQ(parent->parent_id, kParent);
  EXPECT_TRUE(parent->sampled);
  EXPECT_EQ(server::FormatTraceParent(*parent), text);
}

TEST(TraceParent, OnlyTheLowestFlagMeansRecorded) {
  EXPECT_FALSE(ParseTraceParent(Header("00", kTrace, kParent, "00"))->sampled);
  EXPECT_FALSE(ParseTraceParent(Header("00", kTrace, kParent, "fe"))->sampled);
  EXPECT_TRUE(ParseTraceParent(Header("00", kTrace, kParent, "0b"))->sampled);
}

TEST(TraceParent, ALaterVersionMayHaveMoreBehindADash) {
  const std::string text = Header("01", kTrace, kParent, "01");
  EXPECT_TRUE(ParseTraceParent(text).has_value());
  EXPECT_TRUE(ParseTraceParent(text + "-more").has_value());
  EXPECT_FALSE(ParseTraceParent(text + "more").has_value());
  EXPECT_FALSE(
      ParseTraceParent(Header("00", kTrace, kParent, "01-more")).has_value());
}

TEST(TraceParent, WhatIsNoneIsIgnored) {
  const std::string zeros(32, '0');
  for (const std::string& text :
       {std::string(), std::string("00"), Header("ff", kTrace, kParent, "01"),
        Header("00", zeros, kParent, "01"),
        Header("00", kTrace, zeros.substr(16), "01"),
        Header("00", std::string(32, 'G'), kParent, "01"),
        Header("00", std::string(32, 'A'), kParent, "01"),
        Header("00", kTrace, kParent, "0x"),
        Header("0-", kTrace, kParent, "01"), std::string(55, '-'),
        std::string(4096, 'a')}) {
    EXPECT_FALSE(ParseTraceParent(text).has_value()) << text;
  }
}

TEST(TraceParent, IdentifiersAreRandomAndWellFormed) {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    const auto parent = ParseTraceParent(
        Header("00", server::NewTraceId(), server::NewSpanId(), "01"));
    ASSERT_TRUE(parent.has_value());
    EXPECT_TRUE(seen.insert(parent->trace_id).second);
    EXPECT_TRUE(seen.insert(parent->parent_id).second);
  }
}

}  // namespace
}  // namespace attendant::testing
