// Threads that copy tensor bytes, so that gRPC's own never do.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace attendant::server {

// Work starts in the order it was given. Thread-safe.
class CopyThreads {
 public:
  explicit CopyThreads(int num_threads);
  // Finishes what was given and joins.
  ~CopyThreads();
  CopyThreads(const CopyThreads&) = delete;
  CopyThreads& operator=(const CopyThreads&) = delete;

  // copy(0) .. copy(num_parts - 1), each once and several at once, then
  // `then`, once, on the thread that ended the last part. num_parts = 0 is only
  // `then`.
  void Run(int num_parts, std::function<void(int)> copy,
           std::function<void()> then);

 private:
  struct Task;
  void RunThread();

  std::mutex mu_;
  std::condition_variable woken_;
  std::deque<std::shared_ptr<Task>> tasks_;  // parts left to start; by mu_
  bool stopped_ = false;                     // guarded by mu_
  std::vector<std::thread> threads_;
};

}  // namespace attendant::server
