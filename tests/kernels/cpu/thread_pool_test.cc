#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace attendant::kernels::cpu {
namespace {

TEST(ThreadPoolTest, RunsEveryTaskOnce) {
  for (int threads : {0, 1, 2, 3, 16}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.num_threads(), std::max(1, threads));
    for (int64_t tasks : {0, 1, 2, 1000}) {
      std::vector<std::atomic<int>> calls(tasks);
      pool.ParallelFor(tasks, [&](int64_t task, int thread) {
        EXPECT_GE(thread, 0);
        EXPECT_LT(thread, pool.num_threads());
        ++calls[task];
      });
      for (const auto& count : calls) EXPECT_EQ(count, 1);
    }
  }
}

TEST(ThreadPoolTest, TasksOfOneLoopNeverShareAThreadAtOneTime) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> running(4);
  pool.ParallelFor(2000, [&](int64_t, int thread) {
    EXPECT_EQ(running[thread].fetch_add(1), 0);
    std::this_thread::yield();
    EXPECT_EQ(running[thread].fetch_sub(1), 1);
  });
}

TEST(ThreadPoolTest, LoopsOfManyCallersAllFinish) {
  ThreadPool pool(3);
  std::atomic<int64_t> sum = 0;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 8; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        pool.ParallelFor(20, [&](int64_t task, int) { sum += task; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 8 * 50 * 190);
}

TEST(ThreadPoolTest, AShortLoopIsServedWhileALongOneRuns) {
  // Every worker is inside the long loop, one of whose tasks waits for the
  // short loop: done only if workers or the short loop's caller get to it.
  ThreadPool pool(2);
  std::mutex mu;
  std::condition_variable changed;
  bool long_runs = false, short_done = false;
  std::thread long_caller([&] {
    pool.ParallelFor(2, [&](int64_t, int) {
      std::unique_lock<std::mutex> lock(mu);
      long_runs = true;
      changed.notify_all();
      changed.wait(lock, [&] { return short_done; });
    });
  });
  {
    std::unique_lock<std::mutex> lock(mu);
    changed.wait(lock, [&] { return long_runs; });
  }
  pool.ParallelFor(10, [](int64_t, int) {});
  {
    std::lock_guard<std::mutex> lock(mu);
    short_done = true;
  }
  changed.notify_all();
  long_caller.join();
}

TEST(ThreadPoolTest, WorkersTakeTurnsBetweenLoops) {
  // One worker; both callers are held in their first task, so the worker alone
  // takes the others: it must not finish one loop before starting the next.
  ThreadPool pool(2);
  std::mutex mu;
  std::condition_variable changed;
  int callers_held = 0;
  std::vector<int> order;
  const auto loop = [&](int name) {
    pool.ParallelFor(5, [&, name](int64_t task, int thread) {
      std::unique_lock<std::mutex> lock(mu);
      if (thread != 0) {
        changed.wait(lock, [&] { return callers_held == 2; });
        if (task > 0) order.push_back(name);
      } else {
        ++callers_held;
      }
      changed.notify_all();
      changed.wait(lock, [&] { return thread != 0 || order.size() >= 6; });
    });
  };
  std::thread first([&] { loop(1); });
  std::thread second([&] { loop(2); });
  first.join();
  second.join();
  int switches = 0;
  for (size_t i = 1; i < 6; ++i) switches += order[i] != order[i - 1];
  EXPECT_GE(switches, 3);
}

// Two nodes; whoever calls is on the first (the second's CPUs do not exist, so
// that binding to them fails, which changes nothing here).
NumaTopology TwoNodes() {
  NumaTopology topology{{{}, {100000, 100001}}};
  for (int cpu = 0; cpu < 1024; ++cpu) topology.cpus_of_node[0].push_back(cpu);
  topology.cpus_of_node[1].resize(1024, 100000);
  return topology;
}

TEST(ThreadPoolTest, AGroupOfTasksStaysOnOneNode) {
  ThreadPool pool(4, TwoNodes());
  constexpr int64_t kTasks = 24, kGroup = 6;
  std::mutex mu;
  std::condition_variable changed;
  int64_t running = 0, round = 0;
  std::vector<int> thread_of(kTasks);
  // Rounds of four tasks, one on each thread: no node is faster.
  pool.ParallelFor(
      kTasks,
      [&](int64_t task, int thread) {
        std::unique_lock<std::mutex> lock(mu);
        thread_of[task] = thread;
        const int64_t mine = round;
        if (++running % 4 == 0) {
          ++round;
          changed.notify_all();
        }
        changed.wait(lock, [&] { return round > mine; });
      },
      [](int64_t task) { return task / kGroup * kGroup; });
  for (int64_t task = 0; task < kTasks; ++task) {
    EXPECT_EQ(thread_of[task] / 2, task / (kTasks / 2)) << task;
  }
}

TEST(ThreadPoolTest, SegmentsBeginAtGroupsAndNothingIsLeft) {
  ThreadPool pool(5, TwoNodes());
  for (const int64_t group : {1, 7, 64, 1000}) {
    std::vector<std::atomic<int>> calls(100);
    pool.ParallelFor(
        100, [&](int64_t task, int) { ++calls[task]; },
        [group](int64_t task) { return task / group * group; });
    for (const auto& count : calls) EXPECT_EQ(count, 1);
  }
}

TEST(ThreadPoolTest, ANodeWithoutTasksHelpsTheOther) {
  ThreadPool pool(4, TwoNodes());
  std::mutex mu;
  std::condition_variable changed;
  int running = 0;
  // One group: all of it in the first segment. Every task waits for four.
  pool.ParallelFor(
      4,
      [&](int64_t, int) {
        std::unique_lock<std::mutex> lock(mu);
        ++running;
        changed.notify_all();
        changed.wait(lock, [&] { return running == 4; });
      },
      [](int64_t) { return 0; });
  EXPECT_EQ(running, 4);
}

}  // namespace
}  // namespace attendant::kernels::cpu
