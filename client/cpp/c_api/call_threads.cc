#include "client/cpp/c_api/call_threads.h"

#include <utility>

#include "client/cpp/start_thread.h"

namespace attendant::client {

CallThreads::~CallThreads() {
  std::vector<std::jthread> threads;  // joined at the end
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    threads.swap(threads_);
  }
  changed_.notify_all();
}

absl::Status CallThreads::Run(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    const bool short_of_threads = tasks_.size() > static_cast<size_t>(idle_);
    if (short_of_threads &&
        threads_.size() < static_cast<size_t>(max_threads_)) {
      std::jthread thread = StartThread([this] { Work(); });
      if (thread.joinable()) {
        threads_.push_back(std::move(thread));
      } else if (threads_.empty()) {
        tasks_.pop_back();
        return absl::ResourceExhaustedError(
            "no thread for an asynchronous call: the system has none left");
      }
    }
  }
  changed_.notify_one();
  return absl::OkStatus();
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
