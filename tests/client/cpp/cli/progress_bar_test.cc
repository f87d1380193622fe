#include "client/cpp/cli/progress_bar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

namespace attendant::client::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(ProgressBar, LineShowsTheShareAndFits) {
  EXPECT_EQ(ProgressLine("x", 0.5, 20), "x [#####-----]  50 %");
  EXPECT_EQ(ProgressLine("x", 0, 20), "x [----------]   0 %");
  EXPECT_EQ(ProgressLine("x", 1, 20), "x [##########] 100 %");
  EXPECT_EQ(ProgressLine("x", 7, 20), ProgressLine("x", 1, 20));
  for (int columns : {1, 5, 10, 40, 80, 200}) {
    const size_t size =
        ProgressLine("a label of some length", 0.3, columns).size();
    EXPECT_LE(size, std::max(columns, 9)) << columns;
  }
}

// What a bar writes while stderr is `fd`.
void DrawOn(int fd) {
  std::fflush(stderr);
  const int before = dup(STDERR_FILENO);
  ASSERT_EQ(dup2(fd, STDERR_FILENO), STDERR_FILENO);
  {
    ProgressBar bar("work");
    bar.Show(0.5);
  }
  std::fflush(stderr);
  dup2(before, STDERR_FILENO);
  close(before);
}

// What reached `reader` from `writer`. A terminal passes bytes on when it
// likes, so they end with a mark that is waited for.
std::string ReadAll(int writer, int reader) {
  constexpr char kEnd = '\x04';
  EXPECT_EQ(write(writer, &kEnd, 1), 1);
  std::string text;
  char c;
  while (read(reader, &c, 1) == 1 && c != kEnd) text += c;
  return text;
}

TEST(ProgressBar, IsDrawnOnATerminalAndLeavesNoTrace) {
  int terminal, child;
  winsize size{};
  size.ws_col = 40;
  ASSERT_EQ(openpty(&terminal, &child, nullptr, nullptr, &size), 0);
  DrawOn(child);
  const std::string text = ReadAll(child, terminal);
  EXPECT_THAT(text, HasSubstr("work ["));
  EXPECT_THAT(text, EndsWith("\r\x1b[K"));
  close(child);
  close(terminal);
}

TEST(ProgressBar, WritesNothingIntoAPipe) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  DrawOn(ends[1]);
  EXPECT_EQ(ReadAll(ends[1], ends[0]), "");
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace attendant::client::cli
