// A job as the scheduler and the executors see it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kernels/problem.h"
#include "server/engine/attention_engine.h"
#include "server/engine/range_pool.h"
#include "server/engine/stage_times.h"
#include "server/engine/work_item.h"

namespace attendant::server {

struct ScheduledJob : AttentionJob {
  enum class State {
    kAdmitted,  // the caller still copies its tensors
    kQueued,    // no item was pulled yet
    kRunning,   // items were pulled
    kEnded,     // `done` is called or about to be
  };

  // Constant after admission.
  int64_t bytes = 0;       // of both blocks
  uint64_t number = 0;     // order of arrival
  RangeHold device_range;  // input image, then output; empty for a CPU
  int64_t device_output_offset = 0;  // from the pool's start, as device_range's
  std::byte* input_memory = nullptr;   // of the host blocks, whoever holds
  std::byte* output_memory = nullptr;  // them by now
  // Pointers in the memory of the device that computes.
  kernels::AttentionProblem problem;
  bool has_uncovered_rows = false;

  // Set for good with State::kEnded, and read by executors without the mutex:
  // what they compute for it is not wanted any more.
  std::atomic<bool> ended = false;

  // Guarded by the scheduler's mutex.
  State state = State::kAdmitted;
  bool cancelled = false;
  bool listed = false;  // among the ready jobs
  Clock::time_point submitted;
  Clock::time_point key;        // the ready job with the earliest goes first
  size_t items_pulled = 0;      // of `ranges`; in order, unless in parts
  std::deque<size_t> arrived;   // in parts: items to pull
  std::set<int64_t> kv_pulled;  // batch entries cut by rows, see WorkItem
  size_t items_running = 0;     // in an executor's hands
  size_t items_done = 0;
  double flops_queued = 0;  // of items not yet pulled
  double cost_left = 0;     // of items not yet done, see QueueLimits::Cost
  std::vector<StageInterval> intervals;
  JobResult result;
  // After the end, until no executor touches them any more.
  HostBlock held_input;
  std::shared_ptr<HostBlock> held_output;

  bool in_parts() const { return request->arrives_in_parts; }
  bool HasItem() const {
    return in_parts() ? !arrived.empty() : items_pulled < ranges.size();
  }
  // HasItem() is true.
  const ItemRange& NextItem() const {
    return ranges[in_parts() ? arrived.front() : items_pulled];
  }
};

}  // namespace attendant::server
