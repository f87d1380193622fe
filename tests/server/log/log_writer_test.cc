#include "server/log/log_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace attendant::server {
namespace {

using nlohmann::json;
using std::chrono::seconds;

class LogWriterTest : public ::testing::Test {
 protected:
  LogWriterTest() {
    EXPECT_EQ(pipe(ends_), 0);
    ::signal(SIGPIPE, SIG_IGN);
  }
  ~LogWriterTest() override {
    for (const int end : ends_) close(end);
  }

  int fd() const { return ends_[1]; }

  // Takes what was written, to the end of the last writer.
  std::vector<std::string> ReadToTheEnd() {
    close(ends_[1]);
    ends_[1] = -1;
    std::string all;
    char bytes[4096];
    while (const ssize_t got = read(ends_[0], bytes, sizeof(bytes))) {
      if (got < 0) break;
      all.append(bytes, static_cast<size_t>(got));
    }
    std::vector<std::string> lines;
    std::istringstream text(all);
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    return lines;
  }

  int ends_[2] = {-1, -1};
};

std::string Line(int number, size_t size = 100) {
  std::string line = std::to_string(number) + " ";
  line.resize(size, 'x');
  return line;
}

// How many lines were lost, if `line` says that some were.
std::optional<int64_t> Told(const std::string& line) {
  const json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (object.is_discarded()) return std::nullopt;
  EXPECT_EQ(object["level"], "warning");
  return object["lines"].get<int64_t>();
}

TEST_F(LogWriterTest, WritesLinesWholeAndInOrder) {
  std::vector<std::string> lines;
  {
    LogWriter writer(fd(), 10'000);
    for (const size_t size : {10, 3000, 9000, 1, 5000, 4095, 4096}) {
      lines.push_back(Line(static_cast<int>(lines.size()), size));
      writer.Append(lines.back());
      EXPECT_TRUE(writer.Flush(seconds(60)));
    }
  }
  EXPECT_EQ(ReadToTheEnd(), lines);
}

TEST_F(LogWriterTest, AFullPipeHoldsNobodyUpAndTheLostAreTold) {
  constexpr int kLines = 20'000;  // 2 MB; pipe and buffer take 130 KB
  const int64_t lost_before = LostLines().no_room;
  std::optional<LogWriter> writer(std::in_place, fd(), 65'536);
  for (int i = 0; i < kLines; ++i) writer->Append(Line(i));
  const int64_t lost = LostLines().no_room - lost_before;
  EXPECT_GT(lost, kLines / 2);
  EXPECT_FALSE(writer->Flush(std::chrono::milliseconds(1)));
  // Somebody reads again, and the log flows.
  std::vector<std::string> lines;
  std::thread reader([&] {
    std::string all;
    char bytes[4096];
    while (all.find("the last") == std::string::npos) {
      const ssize_t got = read(ends_[0], bytes, sizeof(bytes));
      ASSERT_GT(got, 0);
      all.append(bytes, static_cast<size_t>(got));
    }
    std::istringstream text(all);
    for (std::string line; std::getline(text, line);) lines.push_back(line);
  });
  EXPECT_TRUE(writer->Flush(seconds(60)));
  writer->Append("the last");
  writer.reset();
  reader.join();
  ASSERT_GT(lines.size(), 2u);
  EXPECT_EQ(lines.back(), "the last");
  lines.pop_back();
  int64_t told = 0, whole = 0;
  int before = -1;
  for (const std::string& line : lines) {
    if (const auto count = Told(line); count.has_value()) {
      told += *count;
      continue;
    }
    const int number = std::atoi(line.c_str());
    EXPECT_EQ(line, Line(number));
    EXPECT_GT(number, before);
    before = number;
    ++whole;
  }
  EXPECT_EQ(told, lost);
  EXPECT_EQ(whole + told, kLines);
}

TEST_F(LogWriterTest, EndsThoughNobodyReads) {
  LogWriter writer(fd(), 65'536);
  for (int i = 0; i < 20'000; ++i) writer.Append(Line(i));
}

TEST_F(LogWriterTest, LinesThatTheSystemRefusesAreToldLater) {
  const int64_t lost_before = LostLines().failed;
  const int file = open("/dev/full", O_WRONLY | O_CLOEXEC);
  {
    LogWriter writer(file, 65'536);
    for (int i = 0; i < 3; ++i) writer.Append(Line(i));
    writer.Append(Line(3, 10'000));
    EXPECT_TRUE(writer.Flush(seconds(60)));
    dup2(fd(), file);  // there is room again
    writer.Append("on we go");
  }
  close(file);
  const std::vector<std::string> lines = ReadToTheEnd();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(Told(lines[0]), 4);
  EXPECT_EQ(lines[1], "on we go");
  EXPECT_EQ(LostLines().failed - lost_before, 4);
}

TEST_F(LogWriterTest, ALineLongerThanTheBufferIsLost) {
  {
    LogWriter writer(fd(), 4'096);
    writer.Append(Line(0, 5'000));
    writer.Append("short");
  }
  const std::vector<std::string> lines = ReadToTheEnd();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(Told(lines[0]), 1);
  EXPECT_EQ(lines[1], "short");
}

TEST_F(LogWriterTest, ManyThreadsLoseNothingThatFits) {
  {
    LogWriter writer(fd(), 1 << 20);
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 100; ++i) writer.Append(Line(i));
      });
    }
  }
  EXPECT_EQ(ReadToTheEnd().size(), 400u);
}

using LogWriterDeathTest = LogWriterTest;

TEST_F(LogWriterDeathTest, AFatalSignalWritesWhatIsHeld) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        LogWriter writer(STDERR_FILENO, 65'536);
        writer.FlushOnFatalSignals();
        writer.Append("last words");
        std::abort();
      },
      ::testing::KilledBySignal(SIGABRT), "last words");
}

}  // namespace
}  // namespace attendant::server
