#include "client/cpp/cli/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "client/cpp/cli/commands.h"

namespace attendant::client::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

std::string OutputOf(const std::string& command) {
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  std::array<char, 4096> piece;
  while (const size_t got = fread(piece.data(), 1, piece.size(), pipe)) {
    text.append(piece.data(), got);
  }
  return pclose(pipe) == 0 ? text : "failed: " + text;
}

// What bash offers for these words, the last one being completed.
std::vector<std::string> Complete(const std::string& words) {
  const std::string path =
      (std::filesystem::path(testing::TempDir()) / "completion.bash").string();
  std::ofstream(path) << BashCompletion(Commands()) << "COMP_WORDS=(" << words
                      << ")\n"
                      << "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
                      << "_attendant\n"
                      << "for word in \"${COMPREPLY[@]}\"; do echo \"$word\"; "
                         "done; true\n";
  std::vector<std::string> offers;
  const std::string text =
      OutputOf("cd " + testing::TempDir() + " && bash --norc " + path);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    offers.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return offers;
}

TEST(Completion, BashOffersCommandsFlagsChoicesAndFiles) {
  EXPECT_THAT(Complete("attendant ch"), ElementsAre("check"));
  EXPECT_THAT(Complete("attendant ''"),
              UnorderedElementsAre("attend", "bench", "check", "completion",
                                   "help", "info", "plot", "watch"));
  EXPECT_THAT(Complete("attendant bench --conc"),
              ElementsAre("--concurrency="));
  EXPECT_THAT(Complete("attendant bench --caus"), ElementsAre("--causal"));
  EXPECT_THAT(Complete("attendant bench --door = s"),
              UnorderedElementsAre("stream", "striped", "shm"));
  EXPECT_THAT(Complete("attendant bench --door ="), testing::SizeIs(6));
  EXPECT_THAT(Complete("attendant bench --door un"), ElementsAre("unary"));
  EXPECT_THAT(Complete("attendant bench --rate = 1"), IsEmpty());
  EXPECT_THAT(Complete("attendant completion b"), ElementsAre("bash"));
  std::ofstream(std::filesystem::path(testing::TempDir()) / "uniquefile.npz");
  EXPECT_THAT(Complete("attendant attend --q = uniquef"),
              ElementsAre("uniquefile.npz"));
  EXPECT_THAT(Complete("attendant attend uniquef"),
              ElementsAre("uniquefile.npz"));
  EXPECT_THAT(Complete("attendant info uniquef"), IsEmpty());
}

TEST(Completion, KnowsEveryFlagOfEveryCommand) {
  const std::string bash = BashCompletion(Commands());
  const std::string zsh = ZshCompletion(Commands());
  for (const Command& command : Commands()) {
    EXPECT_THAT(zsh, HasSubstr("'" + command.name + ":"));
    for (const FlagSpec& spec : command.flags) {
      EXPECT_THAT(bash, HasSubstr(std::string("--") + spec.name));
      EXPECT_THAT(zsh, HasSubstr(std::string("'--") + spec.name));
    }
  }
}

TEST(Completion, ZshReadsItsScript) {
  if (std::system("command -v zsh >/dev/null") != 0) {
    GTEST_SKIP() << "no zsh here";
  }
  const std::string path =
      (std::filesystem::path(testing::TempDir()) / "_attendant").string();
  std::ofstream(path) << ZshCompletion(Commands());
  EXPECT_EQ(OutputOf("zsh -n " + path + " 2>&1"), "");
}

TEST(Completion, NamesAnUnknownShell) {
  EXPECT_EQ(RunCommandLine({"completion", "fish"}), kUsage);
  EXPECT_EQ(RunCommandLine({"completion"}), kUsage);
}

// Every command: help with flags and examples that name it.
TEST(Commands, HelpShowsExamplesOfEveryCommand) {
  for (const Command& command : Commands()) {
    const std::string help = HelpOf(command);
    EXPECT_THAT(help, HasSubstr("Examples\n"));
    EXPECT_THAT(command.examples, HasSubstr("attendant " + command.name));
    EXPECT_THAT(help, HasSubstr("--json"));
    EXPECT_THAT(help, HasSubstr("--help"));
    EXPECT_THAT(help, Not(HasSubstr("\n\n\n")));
    testing::internal::CaptureStdout();
    EXPECT_EQ(RunCommandLine({command.name, "--help"}), kOk);
    EXPECT_EQ(testing::internal::GetCapturedStdout(), help);
  }
}

}  // namespace
}  // namespace attendant::client::cli
