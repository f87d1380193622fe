#include "kernels/cpu/thread_pool.h"

#include <algorithm>
#include <utility>

namespace attendant::kernels::cpu {

ThreadPool::ThreadPool(int num_threads, NumaTopology topology)
    : topology_(std::move(topology)),
      node_of_(topology_.NodesOfThreads(std::max(1, num_threads))) {
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

ThreadPool::Loop ThreadPool::MakeLoop(
    int64_t num_tasks, const std::function<void(int64_t, int)>& fn,
    const std::function<int64_t(int64_t)>& group_start) const {
  Loop loop{&fn, {}, node_of_, num_tasks};
  const int64_t num_threads = static_cast<int64_t>(node_of_.size());
  int64_t begin = 0;
  for (int node = 0; node <= node_of_.back(); ++node) {
    // The node's share of the tasks is its share of the threads.
    const int64_t threads_so_far =
        std::upper_bound(node_of_.begin(), node_of_.end(), node) -
        node_of_.begin();
    int64_t end = num_tasks * threads_so_far / num_threads;
    if (end < num_tasks && group_start != nullptr) end = group_start(end);
    end = std::max(end, begin);
    loop.segments.push_back({begin, end});
    begin = end;
  }
  const int here = topology_.NodeOfCpu(CurrentCpu());
  loop.segment_of[0] = std::min<int>(here, loop.segments.size() - 1);
  return loop;
}

void ThreadPool::RunOne(std::list<Loop>::iterator loop, int thread,
                        std::unique_lock<std::mutex>& lock) {
  int& segment = loop->segment_of[thread];
  const auto used_up = [&] {
    return loop->segments[segment].next == loop->segments[segment].end;
  };
  while (used_up()) segment = (segment + 1) % loop->segments.size();
  const int64_t task = loop->segments[segment].next++;
  --loop->untaken;
  ++loop->running;
  // The end of the line: the next free thread serves the next loop.
  std::list<Loop>& home = loop->untaken == 0 ? taken_ : open_;
  home.splice(home.end(), open_, loop);
  lock.unlock();
  (*loop->fn)(task, thread);
  lock.lock();
  --loop->running;
  if (loop->running == 0 && loop->untaken == 0) done_.notify_all();
}

void ThreadPool::Work(int thread) {
  if (node_of_.back() > 0) {
    BindThisThread(topology_.cpus_of_node[node_of_[thread]]);
  }
  std::unique_lock<std::mutex> lock(mu_);
  while (true) {
    work_.wait(lock, [this] { return stop_ || !open_.empty(); });
    if (stop_) return;
    RunOne(open_.begin(), thread, lock);
  }
}

void ThreadPool::ParallelFor(
    int64_t num_tasks, const std::function<void(int64_t task, int thread)>& fn,
    const std::function<int64_t(int64_t task)>& group_start) {
  if (workers_.empty() || num_tasks <= 1) {
    for (int64_t task = 0; task < num_tasks; ++task) fn(task, 0);
    return;
  }
  Loop made = MakeLoop(num_tasks, fn, group_start);
  std::unique_lock<std::mutex> lock(mu_);
  const auto loop = open_.insert(open_.end(), std::move(made));
  work_.notify_all();
  while (loop->untaken > 0) RunOne(loop, 0, lock);
  done_.wait(lock, [&] { return loop->running == 0; });
  taken_.erase(loop);
}

}  // namespace attendant::kernels::cpu
