#include "client/cpp/cli/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cpp/client_error.h"

namespace attendant::client::cli {
namespace {

using ::testing::ElementsAre;

constexpr FlagSpec kSpecs[] = {
    {"number", "N", "a number"}, {"list", "N,N", "numbers"}, {"on", "", "yes"}};

TEST(Flags, TakesBothForms) {
  const auto flags =
      Flags::Parse({"a", "--number=5", "--list", "1,-2", "--on", "b"}, kSpecs);
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(**flags->Int("number"), 5);
  EXPECT_THAT(*flags->Ints("list"), ElementsAre(1, -2));
  EXPECT_THAT(*flags->Floats("list"), ElementsAre(1, -2));
  EXPECT_TRUE(flags->Switch("on"));
  EXPECT_THAT(flags->positional(), ElementsAre("a", "b"));
  EXPECT_FALSE(Flags::Parse({"--on=false"}, kSpecs)->Switch("on"));
}

TEST(Flags, NamesWhatIsWrong) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--unknown=1"},
        {"--number"},
        {"--on=maybe"},
        {"--on", "--on"},
        {"--"}}) {
    const auto flags = Flags::Parse(arguments, kSpecs);
    ASSERT_FALSE(flags.ok()) << arguments[0];
    EXPECT_EQ(GetErrorDetail(flags.status())->field.rfind("--", 0), 0);
  }
  const auto flags = Flags::Parse({"--number=x", "--list=1,,2"}, kSpecs);
  ASSERT_TRUE(flags.ok());
  EXPECT_EQ(GetErrorDetail(flags->Int("number").status())->value, "x");
  EXPECT_FALSE(flags->Float("number").ok());
  EXPECT_FALSE(flags->Ints("list").ok());
}

TEST(Flags, AreAbsentWhenNotGiven) {
  const auto flags = Flags::Parse({}, kSpecs);
  ASSERT_TRUE(flags.ok());
  EXPECT_FALSE(flags->Int("number")->has_value());
  EXPECT_TRUE(flags->Ints("list")->empty());
  EXPECT_EQ(flags->String("number", "7"), "7");
}

}  // namespace
}  // namespace attendant::client::cli
