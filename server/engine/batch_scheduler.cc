#include "server/engine/batch_scheduler.h"

#include <algorithm>
#include <limits>
#include <map>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace attendant::server {
namespace {

constexpr size_t kMaxItemsInBatch = 256;
// How many jobs whose next item is too large for the rest of a batch are passed
// over in search of smaller ones.
constexpr int kMaxPassedOver = 64;
constexpr std::chrono::milliseconds kPriorityStep{5};
// An identity whose last request is so old does not use the device any more.
constexpr std::chrono::seconds kUsesDeviceFor{1};

Clock::duration ToDuration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(seconds));
}

std::shared_ptr<ScheduledJob> ToScheduled(
    const std::shared_ptr<AttentionJob>& job) {
  return std::static_pointer_cast<ScheduledJob>(job);
}

}  // namespace

BatchScheduler::BatchScheduler(Options options) : options_(std::move(options)) {
  ATTENDANT_CHECK(options_.pools.host != nullptr);
  ATTENDANT_CHECK(options_.work_item_bytes > 0 && options_.work_item_flops > 0);
}

BatchScheduler::~BatchScheduler() = default;

// --- Admission ---

absl::StatusOr<std::shared_ptr<AttentionJob>> BatchScheduler::Admit(
    std::unique_ptr<ValidatedRequest> request, Clock::time_point deadline) {
  RETURN_IF_ERROR(CheckCanEverFit(*request, options_.limits));
  std::shared_ptr<ScheduledJob> job(new ScheduledJob, [this](ScheduledJob* j) {
    if (j->state == ScheduledJob::State::kAdmitted) Forget(j);
    delete j;
  });
  // Until it entered, there is nothing to forget.
  job->state = ScheduledJob::State::kEnded;
  job->request = std::move(request);
  job->deadline = deadline;
  job->bytes = BlockBytes(*job->request);
  job->has_uncovered_rows = kernels::HasUncoveredRows(job->request->problem);
  const auto cut = job->in_parts() ? &CutIntoParts : &CutIntoItems;
  // What the kernel finds in place is not cut for the sake of its copies.
  job->ranges = cut(job->request->problem,
                    job->bytes > 0 ? options_.work_item_bytes
                                   : std::numeric_limits<int64_t>::max(),
                    options_.work_item_flops);
  if (job->bytes == 0) {
    for (ItemRange& range : job->ranges) range.bytes = 0;
  }
  {
    std::lock_guard lock(mu_);
    if (!ended_all_.ok()) return ended_all_;
    if (draining_) return absl::UnavailableError("the server is draining");
    job->admitted = options_.now();
    job->key = KeyOf(*job);
    const QueueLoad load = LoadBefore(*job);
    RETURN_IF_ERROR(CheckDeadline(*job->request, options_.limits, load, rate_,
                                  deadline - job->admitted));
    RETURN_IF_ERROR(CheckRoom(*job->request, options_.limits, load, rate_));
    RETURN_IF_ERROR(TakeJobMemory(options_.pools,
                                  RetryMs(load.cost_left, rate_), job.get()));
    Enter(job.get());
  }
  PlaceProblem(options_.pools, job.get());
  return std::shared_ptr<AttentionJob>(std::move(job));
}

void BatchScheduler::Enter(ScheduledJob* job) {
  job->state = ScheduledJob::State::kAdmitted;
  job->number = next_number_++;
  job->flops_queued = job->request->flops;
  for (const ItemRange& range : job->ranges) {
    job->cost_left += options_.limits.Cost(range.flops, range.bytes);
  }
  present_.insert(job);
  counts_.queued_requests += 1;
  counts_.queued_bytes += job->bytes;
  counts_.queued_flops += job->flops_queued;
  lines_.Enter(job);
}

Clock::time_point BatchScheduler::KeyOf(const ScheduledJob& job) const {
  return std::min(job.deadline, job.admitted + options_.max_age) -
         job.request->priority * kPriorityStep;
}

QueueLoad BatchScheduler::LoadBefore(const ScheduledJob& job) const {
  const Caller& caller = job.request->caller;
  QueueLoad load{counts_.queued_requests, counts_.queued_bytes,
                 counts_.queued_flops};
  std::map<std::string, std::pair<double, double>> others;  // cost, weight
  for (const ScheduledJob* other : present_) {
    load.cost_left += other->cost_left;
    const Caller& its = other->request->caller;
    if (its.identity != caller.identity) {
      auto& [cost, weight] = others[its.identity];
      cost += other->cost_left;
      weight = its.weight;
      continue;
    }
    if (other->key <= job.key) load.cost_ahead += other->cost_left;
    if (other->state > ScheduledJob::State::kQueued) continue;
    load.own_requests += 1;
    load.own_bytes += other->bytes;
    load.own_flops += other->flops_queued;
  }
  // While the caller's own work is done, another identity gets as much for its
  // weight, if it has so much.
  const double own =
      load.cost_ahead + options_.limits.Cost(job.request->flops, job.bytes);
  for (const auto& [identity, of] : others) {
    const auto& [cost, weight] = of;
    load.cost_ahead += std::min(cost, own * weight / caller.weight);
  }
  return load;
}

double BatchScheduler::SecondsOf(double cost) const {
  return rate_.Seconds(cost).value_or(cost / options_.assumed_flops_per_second);
}

void BatchScheduler::Submit(const std::shared_ptr<AttentionJob>& submitted) {
  const std::shared_ptr<ScheduledJob> job = ToScheduled(submitted);
  {
    std::lock_guard lock(mu_);
    if (job->state != ScheduledJob::State::kAdmitted) return;
    job->submitted = options_.now();
    job->state = ScheduledJob::State::kQueued;
    submitted_.emplace(job->deadline, job);
    if (!ended_all_.ok() || job->cancelled) {
      EndJob(job, !ended_all_.ok()
                      ? ended_all_
                      : absl::CancelledError("the caller cancelled"));
      timer_.notify_one();
    } else {
      if (job->deadline < timer_sleeps_until_) timer_.notify_one();
      MakeReadyIfFirst(job);
    }
  }
  executor_->Wake();
}

void BatchScheduler::InputArrived(const std::shared_ptr<AttentionJob>& arrived,
                                  size_t index) {
  const std::shared_ptr<ScheduledJob> job = ToScheduled(arrived);
  {
    std::lock_guard lock(mu_);
    if (job->state == ScheduledJob::State::kEnded) return;
    ATTENDANT_CHECK(job->in_parts() &&
                    job->state != ScheduledJob::State::kAdmitted);
    job->arrived.push_back(index);
    if (!job->listed) MakeReadyIfFirst(job);
  }
  executor_->Wake();
}

void BatchScheduler::Cancel(const std::shared_ptr<AttentionJob>& cancelled) {
  const std::shared_ptr<ScheduledJob> job = ToScheduled(cancelled);
  {
    std::lock_guard lock(mu_);
    job->cancelled = true;
    if (job->state == ScheduledJob::State::kAdmitted ||
        job->state == ScheduledJob::State::kEnded) {
      return;
    }
    EndJob(job, absl::CancelledError("the caller cancelled"));
    timer_.notify_one();
  }
  executor_->Wake();
}

void BatchScheduler::MakeReadyIfFirst(
    const std::shared_ptr<ScheduledJob>& job) {
  if (!lines_.IsFirst(*job) || !job->HasItem()) return;
  job->listed = true;
  ready_.Insert(job);
}

// --- Work for executors ---

Batch BatchScheduler::Pull() {
  Batch batch;
  std::lock_guard lock(mu_);
  batch.pulled = options_.now();
  EndExpired(batch.pulled);
  std::set<const ScheduledJob*> jobs;
  int passed_over = 0;
  const double max_flops = MaxBatchFlops(batch.pulled);
  const auto fits = [&](const ItemRange& item) {
    return batch.items.empty() ||
           (batch.bytes + item.bytes <= options_.max_batch_bytes &&
            batch.flops + item.flops <= max_flops);
  };
  FairQueue::Walk walk(&ready_);
  while (batch.items.size() < kMaxItemsInBatch) {
    const std::shared_ptr<ScheduledJob> job = walk.Head();
    if (job == nullptr) break;
    const ItemRange& item = job->NextItem();
    if (!fits(item)) {
      if (++passed_over > kMaxPassedOver) break;
      walk.PassOver();
      continue;
    }
    walk.Take(SecondsOf(options_.limits.Cost(item.flops, item.bytes)));
    job->listed = false;
    TakeItem(job, &batch);
    if (jobs.insert(job.get()).second) ++batch.requests;
    if (job->HasItem()) {
      walk.PutBack(job);
      job->listed = true;
    }
  }
  return batch;
}

double BatchScheduler::MaxBatchFlops(Clock::time_point now) const {
  return ready_.IsShared(now - kUsesDeviceFor)
             ? std::min(options_.max_batch_flops, options_.work_item_flops)
             : options_.max_batch_flops;
}

void BatchScheduler::TakeItem(const std::shared_ptr<ScheduledJob>& job,
                              Batch* batch) {
  if (job->state == ScheduledJob::State::kQueued) {
    job->state = ScheduledJob::State::kRunning;
    counts_.queued_requests -= 1;
    counts_.queued_bytes -= job->bytes;
    counts_.running_requests += 1;
  }
  WorkItem item;
  item.job = job;
  item.range = job->NextItem();
  item.first = job->items_pulled == 0;
  if (item.range.cut_by_rows()) {
    item.brings_kv = job->kv_pulled.insert(item.range.batch_begin).second;
  }
  if (job->in_parts()) job->arrived.pop_front();
  batch->tokens += item.range.tokens;
  batch->bytes += item.range.bytes;
  batch->flops += item.range.flops;
  job->items_pulled += 1;
  job->items_running += 1;
  counts_.queued_flops -= item.range.flops;
  job->flops_queued -= item.range.flops;
  job->key += 2 * ToDuration(SecondsOf(options_.limits.Cost(item.range.flops,
                                                            item.range.bytes)));
  batch->items.push_back(std::move(item));
}

}  // namespace attendant::server
