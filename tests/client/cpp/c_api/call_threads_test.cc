#include "client/cpp/c_api/call_threads.h"

#include <gtest/gtest.h>

#include <future>
#include <optional>

#include "tests/client/cpp/no_more_threads.h"

namespace attendant::client {
namespace {

TEST(CallThreads, ATaskThatNoThreadCanRunIsRefusedAndNeverRuns) {
  int runs = 0;
  {
    CallThreads threads(4);
    {
      const NoMoreThreads scarce;
      for (int i = 0; i < 2; ++i) {
        EXPECT_TRUE(absl::IsResourceExhausted(threads.Run([&] { ++runs; })));
      }
    }
    EXPECT_TRUE(threads.Run([&] { ++runs; }).ok());
  }
  EXPECT_EQ(runs, 1) << "the one that came when there were threads again";
}

TEST(CallThreads, TasksWaitForTheThreadsThatThereAre) {
  std::promise<void> gate;
  int runs = 0;
  std::optional<CallThreads> threads(4);
  ASSERT_TRUE(threads->Run([&] { gate.get_future().wait(); }).ok());
  {
    const NoMoreThreads scarce;
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(threads->Run([&] { ++runs; }).ok());
    }
  }
  gate.set_value();
  threads.reset();
  EXPECT_EQ(runs, 3);
}

}  // namespace
}  // namespace attendant::client
