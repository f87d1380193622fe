#include "client/cpp/cli/bench/bench_case.h"

#include <gtest/gtest.h>

#include <string>

namespace attendant::client::cli {
namespace {

TEST(BenchCase, TheKindOfCallIsTheOneThatWasNamed) {
  for (const CallKind kind :
       {CallKind::kPrepared, CallKind::kOut, CallKind::kNew}) {
    const auto flags =
        Flags::Parse({std::string("--call=") + Name(kind)}, BenchFlags());
    ASSERT_TRUE(flags.ok()) << flags.status();
    const auto cases = ReadBenchCases(*flags);
    ASSERT_TRUE(cases.ok()) << cases.status();
    ASSERT_EQ(cases->size(), 1);
    EXPECT_EQ(cases->front().call, kind) << Name(kind);
  }
  EXPECT_STREQ(Name(CallKind::kPrepared), "prepared");
  EXPECT_STREQ(Name(CallKind::kOut), "out");
  EXPECT_STREQ(Name(CallKind::kNew), "new");
}

}  // namespace
}  // namespace attendant::client::cli
