#include "server/selftest/check_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tests/server/selftest/printed.h"

namespace attendant::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST(CheckReport, AllGoodPasses) {
  Printed printed;
  server::CheckReport report(printed.file());
  report.Run("first", [] { return "fine"; });
  EXPECT_TRUE(report.Finish());
  EXPECT_THAT(printed.text(),
              MatchesRegex("first +ok +[0-9.]+ s  fine\nPASS: 1 checks in .*"));
}

TEST(CheckReport, OneFailureFailsAndTheRestStillRuns) {
  Printed printed;
  server::CheckReport report(printed.file());
  report.Run("first", [] { return absl::InternalError("broken"); });
  report.Run("second", [] { return "fine"; });
  EXPECT_FALSE(report.Finish());
  EXPECT_THAT(printed.text(), HasSubstr("FAIL"));
  EXPECT_THAT(printed.text(), HasSubstr("s  broken\nsecond"));
  EXPECT_THAT(printed.text(), HasSubstr("FAIL: 1 of 2 checks failed"));
}

TEST(CheckReport, WhatIsNotThereIsNoFailure) {
  Printed printed;
  server::CheckReport report(printed.file());
  report.Run("first", [] { return absl::UnimplementedError("no such thing"); });
  EXPECT_TRUE(report.Finish());
  EXPECT_THAT(printed.text(), HasSubstr(" n/a "));
}

}  // namespace
}  // namespace attendant::testing
