// Threads that asynchronous calls run on: the client's own calls block.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"

namespace attendant::client {

// Starts a thread when a task comes and none is idle, up to `max_threads` or to
// what the system has; further tasks wait their turn. Thread-safe.
class CallThreads {
 public:
  explicit CallThreads(int max_threads) : max_threads_(max_threads) {}
  // Waits for every task, also those that have not begun.
  ~CallThreads();
  CallThreads(const CallThreads&) = delete;
  CallThreads& operator=(const CallThreads&) = delete;

  // RESOURCE_EXHAUSTED, and the task never runs, if there is no thread and the
  // system has none left.
  absl::Status Run(std::function<void()> task);

 private:
  void Work();

  const int max_threads_;
  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  int idle_ = 0;
  bool ending_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace attendant::client
