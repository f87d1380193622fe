#include "client/cpp/cli/progress_bar.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <cstdio>

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

std::string ReadAll(int fd) {
  fcntl(fd, F_SETFL, O_NONBLOCK);
  char text[4096];
  const ssize_t size = read(fd, text, sizeof(text));
  return size > 0 ? std::string(text, static_cast<size_t>(size)) : "";
}

TEST(ProgressBar, IsDrawnOnATerminalAndLeavesNoTrace) {
  int terminal, child;
  winsize size{};
  size.ws_col = 40;
  ASSERT_EQ(openpty(&terminal, &child, nullptr, nullptr, &size), 0);
  DrawOn(child);
  const std::string text = ReadAll(terminal);
  EXPECT_THAT(text, HasSubstr("work ["));
  EXPECT_THAT(text, EndsWith("\r\x1b[K"));
  close(child);
  close(terminal);
}

TEST(ProgressBar, WritesNothingIntoAPipe) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  DrawOn(ends[1]);
  EXPECT_EQ(ReadAll(ends[0]), "");
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace attendant::client::cli
