#include "kernels/cpu/thread_pool.h"

namespace attendant::kernels::cpu {

ThreadPool::ThreadPool(int num_threads) {
  for (int thread = 1; thread < num_threads; ++thread) {
    workers_.emplace_back([this, thread] { Work(thread); });
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard<std::mutex> lock(mu_);
    stop_ = true;
  }
  work_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::RunOne(std::list<Loop>::iterator loop, int thread,
                        std::unique_lock<std::mutex>& lock) {
  const int64_t task = loop->next++;
  ++loop->running;
  // The end of the line: the next free thread serves the next loop.
  std::list<Loop>& home = loop->next == loop->num_tasks ? taken_ : open_;
  home.splice(home.end(), open_, loop);
  lock.unlock();
  (*loop->fn)(task, thread);
  lock.lock();
  --loop->running;
  if (loop->running == 0 && loop->next == loop->num_tasks) {
    done_.notify_all();
  }
}

void ThreadPool::Work(int thread) {
  std::unique_lock<std::mutex> lock(mu_);
  while (true) {
    work_.wait(lock, [this] { return stop_ || !open_.empty(); });
    if (stop_) return;
    RunOne(open_.begin(), thread, lock);
  }
}

void ThreadPool::ParallelFor(
    int64_t num_tasks,
    const std::function<void(int64_t task, int thread)>& fn) {
  if (workers_.empty() || num_tasks <= 1) {
    for (int64_t task = 0; task < num_tasks; ++task) fn(task, 0);
    return;
  }
  std::unique_lock<std::mutex> lock(mu_);
  const auto loop = open_.insert(open_.end(), Loop{&fn, num_tasks});
  work_.notify_all();
  while (loop->next < num_tasks) RunOne(loop, 0, lock);
  done_.wait(lock, [&] { return loop->running == 0; });
  taken_.erase(loop);
}

}  // namespace attendant::kernels::cpu
