// The CPU backend's own threads, shared by every launch of the process.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/cpu/numa_topology.h"

namespace attendant::kernels::cpu {

// Runs loops of independent tasks on num_threads threads: the caller of
// ParallelFor is one of them (thread 0), num_threads - 1 workers are the rest.
//
// Thread safety: ParallelFor may be called from several threads at once. The
// workers then take one task of each loop in turn, so a short loop is not stuck
// behind a long one, and each caller works on its own loop alone, so every loop
// makes progress. A task must not call ParallelFor of the same pool.
//
// Where the machine has several NUMA nodes (and there are two threads for
// each), workers are bound to the CPUs of a node, and a loop's tasks are cut
// into one segment for each node. A thread takes tasks of its node's segment;
// when that is used up, it moves to another one and stays there.
class ThreadPool {
 public:
  // `num_threads` below 1 counts as 1: everything runs on the caller.
  explicit ThreadPool(int num_threads,
                      NumaTopology topology = MachineNumaTopology());
  // No ParallelFor may be running.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls fn(task, thread) once for each task in [0, num_tasks), and returns
  // when all calls have returned. Tasks of a segment start in rising order.
  // `thread` is below num_threads(), and no two calls of one loop run at the
  // same time with the same `thread`: scratch memory may be indexed by it.
  // Segments begin at values of group_start(task), the first of the tasks that
  // read the same data as `task`; null: anywhere.
  void ParallelFor(
      int64_t num_tasks,
      const std::function<void(int64_t task, int thread)>& fn,
      const std::function<int64_t(int64_t task)>& group_start = nullptr);

 private:
  struct Segment {
    int64_t next;  // first task that nobody has taken
    int64_t end;
  };
  struct Loop {
    const std::function<void(int64_t, int)>* fn;
    std::vector<Segment> segments;  // one for each node
    std::vector<int> segment_of;    // where each thread takes tasks
    int64_t untaken;                // tasks of all segments
    int64_t running = 0;            // tasks taken and not yet returned
  };

  Loop MakeLoop(int64_t num_tasks, const std::function<void(int64_t, int)>& fn,
                const std::function<int64_t(int64_t)>& group_start) const;
  void Work(int thread);
  // Takes the next task of `loop`, runs it with mu_ released. Requires mu_.
  void RunOne(std::list<Loop>::iterator loop, int thread,
              std::unique_lock<std::mutex>& lock);

  const NumaTopology topology_;
  const std::vector<int> node_of_;  // of each thread; the caller's may differ
  std::mutex mu_;
  std::condition_variable work_;  // a loop with untaken tasks came, or stop_
  std::condition_variable done_;  // a loop's last task returned
  // Loops with untaken tasks, the one whose turn it is first; loops move to
  // `taken_` with their last task. Guarded by mu_.
  std::list<Loop> open_;
  std::list<Loop> taken_;
  bool stop_ = false;  // guarded by mu_
  std::vector<std::thread> workers_;
};

}  // namespace attendant::kernels::cpu
