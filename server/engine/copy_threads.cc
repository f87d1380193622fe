#include "server/engine/copy_threads.h"

#include <algorithm>
#include <utility>

namespace attendant::server {

struct CopyThreads::Task {
  std::function<void(int)> copy;
  std::function<void()> then;
  int parts_to_start = 0;  // guarded by mu_, as the next
  int parts_to_end = 0;
};

CopyThreads::CopyThreads(int num_threads) {
  for (int i = 0; i < std::max(1, num_threads); ++i) {
    threads_.emplace_back([this] { RunThread(); });
  }
}

CopyThreads::~CopyThreads() {
  {
    std::lock_guard lock(mu_);
    stopped_ = true;
    woken_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

void CopyThreads::Run(int num_parts, std::function<void(int)> copy,
                      std::function<void()> then) {
  auto task = std::make_shared<Task>();
  task->copy = num_parts > 0 ? std::move(copy) : [](int) {};
  task->then = std::move(then);
  task->parts_to_start = task->parts_to_end = std::max(1, num_parts);
  std::lock_guard lock(mu_);
  tasks_.push_back(std::move(task));
  if (num_parts > 1) {
    woken_.notify_all();
  } else {
    woken_.notify_one();
  }
}

void CopyThreads::RunThread() {
  std::unique_lock lock(mu_);
  while (true) {
    woken_.wait(lock, [this] { return stopped_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const std::shared_ptr<Task> task = tasks_.front();
    const int part = --task->parts_to_start;
    if (part == 0) tasks_.pop_front();
    lock.unlock();
    task->copy(part);
    lock.lock();
    if (--task->parts_to_end > 0) continue;
    lock.unlock();
    task->copy = nullptr;  // what it holds is not kept for the rest
    task->then();
    task->then = nullptr;
    lock.lock();
  }
}

}  // namespace attendant::server
