// BatchScheduler, second half: what executors report, and how jobs end.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/engine/batch_scheduler.h"

namespace attendant::server {
namespace {

absl::Status DeadlinePassed(const char* where) {
  return absl::DeadlineExceededError(
      absl::StrCat("the deadline passed in stage ", where));
}

// Of the tensors that the reply carries.
int64_t ReplyBytes(const ValidatedRequest& request) {
  return (request.output_place.in_region() ? 0 : request.wire_output_bytes()) +
         (request.lse_place.in_region() ? 0 : request.lse_bytes);
}

}  // namespace

// --- Reports of executors ---

bool BatchScheduler::Reached(const WorkItem& item, Stage stage) {
  std::lock_guard lock(mu_);
  ScheduledJob& job = *item.job;
  if (job.state == ScheduledJob::State::kEnded) return false;
  job.result.stage = std::max(job.result.stage, stage);
  if (job.deadline > options_.now()) return true;
  EndJob(item.job, DeadlinePassed(StageName(job.result.stage)));
  timer_.notify_one();
  return false;
}

void BatchScheduler::Finish(Batch batch) {
  Due due;
  std::vector<SpentMemory> spent;  // goes when the lock is no longer held
  {
    std::lock_guard lock(mu_);
    FinishItems(batch, &spent);
    if (!MayTellAtOnce()) {
      if (!ended_.empty() || !items_done_.empty()) timer_.notify_one();
      return;
    }
    due = TakeDue();
  }
  batch = Batch();
  Tell(&due);
}

void BatchScheduler::FinishItems(const Batch& batch,
                                 std::vector<SpentMemory>* spent) {
  std::set<ScheduledJob*> jobs;
  for (const WorkItem& item : batch.items) {
    ScheduledJob& job = *item.job;
    if (jobs.insert(&job).second && job.state != ScheduledJob::State::kEnded) {
      job.intervals.insert(job.intervals.end(), batch.intervals.begin(),
                           batch.intervals.end());
    }
  }
  for (const WorkItem& item : batch.items) FinishItem(batch, item, spent);
  CountBatch(batch, options_.now());
}

void BatchScheduler::FinishItem(const Batch& batch, const WorkItem& item,
                                std::vector<SpentMemory>* spent) {
  ScheduledJob& job = *item.job;
  job.items_running -= 1;
  job.items_done += 1;
  if (job.state == ScheduledJob::State::kEnded) {
    if (job.items_running == 0) spent->push_back(TakeSpentMemory(&job));
    return;
  }
  job.cost_left -= options_.limits.Cost(item.range.flops, item.range.bytes);
  job.result.kernel = item.kernel;
  job.result.workspace_bytes += item.workspace_bytes;
  job.result.batch_requests =
      std::max(job.result.batch_requests, batch.requests);
  job.result.batch_tokens = std::max(job.result.batch_tokens, batch.tokens);
  if (!item.status.ok()) {
    EndJob(item.job, item.status);
    return;
  }
  if (job.in_parts()) items_done_.emplace_back(item.job, item.range);
  if (job.items_done == job.ranges.size()) EndJob(item.job, absl::OkStatus());
}

// One job that ended well with a small answer, and nothing else to do: it is
// told sooner than another thread wakes up.
bool BatchScheduler::MayTellAtOnce() const {
  if (ended_.size() != 1 || !items_done_.empty() ||
      counts_.queued_requests + counts_.running_requests > 0) {
    return false;
  }
  const Ended& ended = ended_.front();
  return ended.result.status.ok() && !ended.job->in_parts() &&
         ReplyBytes(*ended.job->request) <= options_.told_at_once_bytes;
}

void BatchScheduler::CountBatch(const Batch& batch, Clock::time_point now) {
  counts_.launches += batch.launches;
  counts_.launched_flops += batch.launched_flops;
  counts_.uploaded_bytes += batch.uploaded_bytes;
  counts_.downloaded_bytes += batch.downloaded_bytes;
  counts_.repairs += batch.repairs;
  counts_.device_workspace_bytes =
      std::max(counts_.device_workspace_bytes, batch.workspace_bytes);
  if (batch.launches > 0) {
    double cost = 0;
    for (const WorkItem& item : batch.items) {
      cost += options_.limits.Cost(item.range.flops, item.range.bytes);
    }
    const auto begin = std::max(batch.pulled, last_finish_);
    rate_.Add(cost, std::chrono::duration<double>(now - begin).count());
    last_finish_ = now;
  }
}

double BatchScheduler::EstimateSeconds(const Batch& batch) {
  std::lock_guard lock(mu_);
  double cost = 0;
  for (const WorkItem& item : batch.items) {
    cost += options_.limits.Cost(item.range.flops, item.range.bytes);
  }
  return SecondsOf(cost);
}

// --- Ends ---

bool BatchScheduler::LeaveOrder(ScheduledJob* job) {
  ScheduledJob* next = lines_.Leave(job);
  if (next == nullptr || next->state != ScheduledJob::State::kQueued) {
    return false;
  }
  const auto found = std::find_if(
      submitted_.begin(), submitted_.end(),
      [&](const auto& entry) { return entry.second.get() == next; });
  MakeReadyIfFirst(found->second);
  return true;
}

void BatchScheduler::LeaveQueue(ScheduledJob* job) {
  if (job->state == ScheduledJob::State::kRunning) {
    counts_.running_requests -= 1;
  } else {
    counts_.queued_requests -= 1;
    counts_.queued_bytes -= job->bytes;
  }
  counts_.queued_flops -= job->flops_queued;
  // Floating point: an empty queue holds no work, whatever was rounded.
  if (counts_.queued_requests + counts_.running_requests == 0) {
    counts_.queued_flops = 0;
  }
  job->cost_left = 0;
}

void BatchScheduler::EndJob(const std::shared_ptr<ScheduledJob>& job,
                            const absl::Status& status) {
  if (job->listed) ready_.Erase(job);
  job->listed = false;
  submitted_.erase({job->deadline, job});
  LeaveQueue(job.get());
  job->state = ScheduledJob::State::kEnded;
  job->ended = true;
  LeaveOrder(job.get());
  job->held_input = std::move(job->input);
  if (!status.ok()) job->held_output = std::move(job->output);
  SpentMemory spent;
  if (job->items_running == 0) spent = TakeSpentMemory(job.get());
  job->result.status = status;
  FillStageTimes(job->submitted,
                 job->in_parts() ? job->input_complete.load() : job->submitted,
                 options_.now(), job->intervals, &job->result);
  ended_.push_back({job, std::move(job->result), std::move(spent)});
}

void BatchScheduler::Forget(ScheduledJob* job) {
  bool next_is_ready = false;
  {
    std::lock_guard lock(mu_);
    LeaveQueue(job);
    next_is_ready = LeaveOrder(job);
    present_.erase(job);
    if (present_.empty()) idle_.notify_all();
  }
  // The next of its line was submitted long ago: nobody else tells the
  // executor.
  if (next_is_ready && executor_ != nullptr) executor_->Wake();
}

void BatchScheduler::EndExpired(Clock::time_point now) {
  while (!submitted_.empty() && submitted_.begin()->first <= now) {
    const std::shared_ptr<ScheduledJob> job = submitted_.begin()->second;
    EndJob(job, DeadlinePassed(StageName(job->result.stage)));
    timer_.notify_one();
  }
}

void BatchScheduler::EndSubmitted(const absl::Status& why) {
  while (!submitted_.empty()) {
    const std::shared_ptr<ScheduledJob> job = submitted_.begin()->second;
    EndJob(job, why);
    timer_.notify_one();
  }
}

void BatchScheduler::EndAll(const absl::Status& why) {
  std::lock_guard lock(mu_);
  if (ended_all_.ok()) ended_all_ = why;
  EndSubmitted(ended_all_);
}

void BatchScheduler::ReportUnhealthy(const absl::Status& why) {
  std::lock_guard lock(mu_);
  const std::string reason(why.message());
  if (counts_.healthy) counts_.unhealthy_reason = reason;
  counts_.healthy = false;
  if (ended_all_.ok()) {
    ended_all_ = absl::UnavailableError(
        absl::StrCat("the device failed: ", counts_.unhealthy_reason));
  }
  EndSubmitted(ended_all_);
}

int BatchScheduler::RunDue() {
  Due due;
  bool expired = false;
  {
    std::lock_guard lock(mu_);
    const size_t before = ended_.size();
    EndExpired(options_.now());
    expired = ended_.size() > before;
    due = TakeDue();
  }
  // An ordered job may have become ready.
  if (expired && executor_ != nullptr) executor_->Wake();
  return Tell(&due);
}

BatchScheduler::Due BatchScheduler::TakeDue() {
  return {std::exchange(ended_, {}), std::exchange(items_done_, {})};
}

int BatchScheduler::Tell(Due* due) {
  for (const auto& [job, range] : due->items) {
    if (job->item_done) job->item_done(range);
  }
  for (auto& [job, result, spent] : due->ended) {
    spent = SpentMemory();  // who is told finds room for what is next
    if (const auto done = std::move(job->done); done) done(std::move(result));
    std::lock_guard lock(mu_);
    present_.erase(job.get());
    if (present_.empty()) idle_.notify_all();
  }
  return static_cast<int>(due->ended.size() + due->items.size());
}

void BatchScheduler::RunTimer() {
  while (true) {
    if (RunDue() > 0) continue;
    std::unique_lock lock(mu_);
    if (!ended_.empty() || !items_done_.empty()) continue;
    if (stop_timer_) return;
    if (timer_sleeps_until_ <= options_.now()) {
      timer_sleeps_until_ = Clock::time_point::max();
    }
    // Not later than said before, even if that job has ended: the next is then
    // submitted without waking this thread.
    if (!submitted_.empty()) {
      timer_sleeps_until_ =
          std::min(timer_sleeps_until_, submitted_.begin()->first);
    }
    if (timer_sleeps_until_ == Clock::time_point::max()) {
      timer_.wait(lock);
    } else {
      // A copy: it changes during the wait.
      const Clock::time_point next = timer_sleeps_until_;
      timer_.wait_until(lock, next);
    }
  }
}

void BatchScheduler::StopTimer() {
  std::lock_guard lock(mu_);
  stop_timer_ = true;
  timer_.notify_all();
}

void BatchScheduler::CloseAdmission() {
  std::lock_guard lock(mu_);
  draining_ = true;
}

bool BatchScheduler::WaitIdle(Clock::time_point deadline) {
  std::unique_lock lock(mu_);
  return idle_.wait_until(lock, deadline, [&] { return present_.empty(); });
}

EngineSnapshot BatchScheduler::Snapshot() const {
  std::lock_guard lock(mu_);
  EngineSnapshot snapshot = counts_;
  snapshot.host_pool_capacity_bytes = options_.pools.host->capacity_bytes();
  snapshot.host_pool_used_bytes = options_.pools.host->used_bytes();
  if (const RangePool* device = options_.pools.device; device != nullptr) {
    snapshot.device_reserved_bytes = device->capacity_bytes();
    snapshot.device_used_bytes = device->used_bytes();
    snapshot.device_peak_bytes = device->peak_bytes();
  }
  return snapshot;
}

}  // namespace attendant::server
