#include "server/connections/poll_turns.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>
#include <vector>

namespace attendant::server {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using Found = PollTurns::Found;

class PollTurnsTest : public ::testing::Test {
 protected:
  PollTurns::Options Options(microseconds watchful, microseconds patience) {
    return {.watchful = watchful,
            .crowded = [this] { return crowded_.load(); },
            .patience = patience};
  }

  std::atomic<bool> crowded_{false};
};

TEST_F(PollTurnsTest, LooksAgainForAWhileThenWaits) {
  PollTurns watchful(Options(hours(1), hours(1)));
  int looks = 0;
  EXPECT_EQ(watchful.Next([&](bool wait) {
    EXPECT_FALSE(wait);
    return ++looks < 5 ? Found::kNothing : Found::kEvent;
  }),
            Found::kEvent);
  EXPECT_EQ(looks, 5);

  PollTurns sleepy(Options(microseconds(0), hours(1)));
  EXPECT_EQ(sleepy.Next([&](bool wait) {
    EXPECT_TRUE(wait);
    return Found::kEvent;
  }),
            Found::kEvent);
}

TEST_F(PollTurnsTest, ACrowdEndsTheLookingWithoutSleep) {
  PollTurns turns(Options(hours(1), hours(1)));
  std::vector<bool> waits;
  turns.Next([&](bool wait) {
    waits.push_back(wait);
    crowded_ = true;
    return wait ? Found::kEvent : Found::kNothing;
  });
  EXPECT_EQ(waits, (std::vector<bool>{false, true}));
}

TEST_F(PollTurnsTest, OneLooksAtATimeWithoutACrowd) {
  PollTurns turns(Options(microseconds(0), microseconds(0)));
  std::atomic<int> inside{0}, most{0}, events{0};
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      while (turns.Next([&](bool) {
        const int now = ++inside;
        if (events < 200 && now > most) most = now;
        std::this_thread::yield();
        --inside;
        return ++events < 200 ? Found::kEvent : Found::kTheEnd;
      }) == Found::kEvent) {
      }
    });
  }
  threads.clear();
  // Those that find the end look after it.
  EXPECT_GE(events, 200);
  EXPECT_EQ(most, 1);
}

TEST_F(PollTurnsTest, InACrowdAllLook) {
  PollTurns turns(Options(hours(1), hours(1)));
  constexpr int kThreads = 3;
  std::atomic<int> inside{0};
  const auto look = [&](bool wait) {
    if (!wait) return Found::kNothing;
    ++inside;
    // None leaves before all are there.
    while (inside < kThreads) std::this_thread::yield();
    return Found::kEvent;
  };
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] { turns.Next(look); });
  }
  crowded_ = true;
}

TEST_F(PollTurnsTest, TheTurnOfOneThatStaysAwayIsTakenOver) {
  PollTurns turns(Options(microseconds(0), microseconds(0)));
  std::promise<void> second_waits;
  std::jthread second;
  // It comes while the first has the turn.
  turns.Next([&](bool) {
    second = std::jthread([&] {
      second_waits.set_value();
      turns.Next([](bool) { return Found::kEvent; });
    });
    second_waits.get_future().wait();
    return Found::kEvent;
  });
  second.join();  // the first never comes back
}

// Crowds come, go and come again while events are found: none is lost, and no
// thread waits for ever.
TEST_F(PollTurnsTest, CrowdsThatComeAndGoLoseNoEvent) {
  PollTurns turns(Options(microseconds(50), microseconds(100)));
  constexpr int kEvents = 3000;
  std::atomic<int> looks{0}, given{0}, found{0};
  const auto look = [&](bool wait) {
    crowded_ = ++looks / 16 % 2 == 1;
    if (!wait && looks % 3 == 0) return Found::kNothing;
    return given++ < kEvents ? Found::kEvent : Found::kTheEnd;
  };
  std::vector<std::jthread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&] {
      while (turns.Next(look) == Found::kEvent) ++found;
    });
  }
  threads.clear();
  EXPECT_EQ(found, kEvents);
}

TEST_F(PollTurnsTest, TheEndIsForAll) {
  PollTurns turns(Options(microseconds(0), hours(1)));
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      EXPECT_EQ(turns.Next([](bool) { return Found::kTheEnd; }),
                Found::kTheEnd);
    });
  }
}

}  // namespace
}  // namespace attendant::server
