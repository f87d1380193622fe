#include "server/engine/copy_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <vector>

namespace attendant::server {
namespace {

TEST(CopyThreadsTest, RunsEachPartOnceThenTheEnd) {
  CopyThreads threads(3);
  std::vector<std::atomic<int>> runs(100);
  std::promise<int> ended;
  threads.Run(
      100, [&](int part) { runs[part].fetch_add(1); },
      [&] {
        int sum = 0;
        for (auto& run : runs) sum += run.load();
        ended.set_value(sum);
      });
  EXPECT_EQ(ended.get_future().get(), 100);
  for (auto& run : runs) EXPECT_EQ(run.load(), 1);
}

TEST(CopyThreadsTest, NoPartsIsOnlyTheEnd) {
  CopyThreads threads(1);
  std::promise<void> ended;
  threads.Run(
      0, [](int) { FAIL(); }, [&] { ended.set_value(); });
  ended.get_future().get();
}

TEST(CopyThreadsTest, NeverRunsOnTheCaller) {
  CopyThreads threads(1);
  std::promise<std::thread::id> thread;
  threads.Run(
      1, [&](int) { thread.set_value(std::this_thread::get_id()); }, [] {});
  EXPECT_NE(thread.get_future().get(), std::this_thread::get_id());
}

TEST(CopyThreadsTest, PartsOfOneTaskRunAtTheSameTime) {
  CopyThreads threads(2);
  // Each part waits for the other: one thread alone would never end.
  std::promise<void> arrived[2];
  std::promise<void> ended;
  threads.Run(
      2,
      [&](int part) {
        arrived[part].set_value();
        arrived[1 - part].get_future().wait();
      },
      [&] { ended.set_value(); });
  ended.get_future().get();
}

TEST(CopyThreadsTest, FinishesWhatWasGivenBeforeItGoes) {
  std::atomic<int> ended{0};
  {
    CopyThreads threads(2);
    for (int i = 0; i < 50; ++i) {
      threads.Run(
          4, [](int) {}, [&] { ended.fetch_add(1); });
    }
  }
  EXPECT_EQ(ended.load(), 50);
}

}  // namespace
}  // namespace attendant::server
