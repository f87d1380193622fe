#include "client/cpp/c_api/call_threads.h"

#include <utility>

namespace attendant::client {

CallThreads::~CallThreads() {
  std::vector<std::thread> threads;
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    threads.swap(threads_);
  }
  changed_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

void CallThreads::Run(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    const bool short_of_threads = tasks_.size() > static_cast<size_t>(idle_);
    if (short_of_threads &&
        threads_.size() < static_cast<size_t>(max_threads_)) {
      threads_.emplace_back([this] { Work(); });
    }
  }
  changed_.notify_one();
}

void CallThreads::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_;
    changed_.wait(lock, [this] { return ending_ || !tasks_.empty(); });
    --idle_;
    if (tasks_.empty()) return;
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

}  // namespace attendant::client
