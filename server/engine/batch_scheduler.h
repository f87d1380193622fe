// The queue: admits jobs, cuts them into work items, hands them out in order,
// and ends them. Has no thread of its own: executors pull, and one thread of
// the owner runs RunTimer (tests call RunDue instead).
//
// Order: identities share the device by weight (see FairQueue). Within one the
// earlier of deadline and admission + max_age goes first (ageing:
// nothing waits for ever behind short deadlines), moved by priority a little.
// Each item taken moves its job's key back by twice the time it is expected to
// take, so that a small request that comes during a large one goes next.
//
// While several identities use the device, a batch is no more work than one
// item: whoever comes waits for the end of the one before, and his own ends
// with what shares its launch.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/engine/admission.h"
#include "server/engine/attention_engine.h"
#include "server/engine/attention_executor.h"
#include "server/engine/fair_queue.h"
#include "server/engine/job_memory.h"
#include "server/engine/ordering_lines.h"
#include "server/engine/scheduled_job.h"
#include "server/engine/service_rate.h"

namespace attendant::server {

class BatchScheduler final : public WorkSource {
 public:
  struct Options {
    QueueLimits limits;
    std::chrono::milliseconds max_age{1000};
    int64_t work_item_bytes = 0;
    double work_item_flops = 0;
    int64_t max_batch_bytes = 0;
    double max_batch_flops = 0;
    // Of an idle device whose speed was not measured yet; orders items only.
    double assumed_flops_per_second = 1e11;
    // The executor's own thread tells of a job that ended well, if nothing else
    // is there to do and the answer has at most so many bytes.
    int64_t told_at_once_bytes = 0;
    JobPools pools;
    std::function<Clock::time_point()> now = [] { return Clock::now(); };
  };

  explicit BatchScheduler(Options options);
  ~BatchScheduler() override;

  // Once, before the first Submit. Outlives every later call but Snapshot.
  void SetExecutor(AttentionExecutor* executor) { executor_ = executor; }

  // As AttentionEngine's.
  absl::StatusOr<std::shared_ptr<AttentionJob>> Admit(
      std::unique_ptr<ValidatedRequest> request, Clock::time_point deadline);
  void Submit(const std::shared_ptr<AttentionJob>& job);
  void InputArrived(const std::shared_ptr<AttentionJob>& job, size_t index);
  void Cancel(const std::shared_ptr<AttentionJob>& job);
  EngineSnapshot Snapshot() const;

  // Ends what is due and calls `done` of all that ended. Returns how many.
  int RunDue();
  // RunDue whenever it is needed, by the real clock, until StopTimer; then once
  // more.
  void RunTimer();
  void StopTimer();

  // From now on Admit gives UNAVAILABLE.
  void CloseAdmission();
  // True if all jobs were done or dropped by `deadline`, on the real clock.
  bool WaitIdle(Clock::time_point deadline);
  // Ends all jobs with `why`, and those submitted later too.
  void EndAll(const absl::Status& why);

  // WorkSource.
  Batch Pull() override;
  bool Reached(const WorkItem& item, Stage stage) override;
  void Finish(Batch batch) override;
  double EstimateSeconds(const Batch& batch) override;
  void ReportUnhealthy(const absl::Status& why) override;

 private:
  struct Ended {
    std::shared_ptr<ScheduledJob> job;
    JobResult result;
    SpentMemory spent;
  };
  // What callers have to be told.
  struct Due {
    std::deque<Ended> ended;
    // Items of jobs in parts that are done.
    std::deque<std::pair<std::shared_ptr<ScheduledJob>, ItemRange>> items;
  };

  // All below: mu_ held, unless they say otherwise.
  void Enter(ScheduledJob* job);
  Clock::time_point KeyOf(const ScheduledJob& job) const;
  double SecondsOf(double cost) const;
  // Of a job that is to be admitted.
  QueueLoad LoadBefore(const ScheduledJob& job) const;
  double MaxBatchFlops(Clock::time_point now) const;
  void TakeItem(const std::shared_ptr<ScheduledJob>& job, Batch* batch);
  // Lists a job that is the first of its line, if an item can be pulled.
  void MakeReadyIfFirst(const std::shared_ptr<ScheduledJob>& job);
  void LeaveQueue(ScheduledJob* job);
  // True if that made the next of its line ready.
  bool LeaveOrder(ScheduledJob* job);
  // Somebody has to tell of it: the timer's thread or the caller.
  void EndJob(const std::shared_ptr<ScheduledJob>& job,
              const absl::Status& status);
  void EndExpired(Clock::time_point now);
  void EndSubmitted(const absl::Status& why);
  // Both hand out memory for when mu_ is not held.
  void FinishItems(const Batch& batch, std::vector<SpentMemory>* spent);
  void FinishItem(const Batch& batch, const WorkItem& item,
                  std::vector<SpentMemory>* spent);
  bool MayTellAtOnce() const;
  Due TakeDue();
  void CountBatch(const Batch& batch, Clock::time_point now);
  // mu_ not held: calls their callbacks; how many.
  int Tell(Due* due);
  // mu_ not held: a job that was never submitted is gone.
  void Forget(ScheduledJob* job);

  const Options options_;
  AttentionExecutor* executor_ = nullptr;

  mutable std::mutex mu_;  // guards all that follows
  std::condition_variable timer_;
  std::condition_variable idle_;
  uint64_t next_number_ = 0;
  std::set<ScheduledJob*> present_;  // admitted, `done` not yet called
  std::set<std::pair<Clock::time_point, std::shared_ptr<ScheduledJob>>>
      submitted_;  // by deadline, not ended
  FairQueue ready_;
  OrderingLines lines_;
  // Of whom nobody was told yet.
  decltype(Due::ended) ended_;
  decltype(Due::items) items_done_;
  ServiceRate rate_;
  Clock::time_point last_finish_;
  bool draining_ = false;
  bool stop_timer_ = false;
  // It wakes up by itself then, and looks for the next.
  Clock::time_point timer_sleeps_until_ = Clock::time_point::max();
  absl::Status ended_all_;  // OK until EndAll or ReportUnhealthy
  EngineSnapshot counts_;
};

}  // namespace attendant::server
