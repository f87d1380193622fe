#include "server/engine/fair_queue.h"

#include <algorithm>
#include <iterator>

namespace attendant::server {
namespace {

// Of the device, for a weight of 1.
constexpr double kClaimSeconds = 0.02;

}  // namespace

void FairQueue::Insert(const std::shared_ptr<ScheduledJob>& job) {
  const Caller& caller = job->request->caller;
  Share& share = shares_[caller.identity];
  if (share.jobs.empty()) {
    share.service = std::max(share.service, served_ - kClaimSeconds);
  }
  share.weight = caller.weight;
  share.last_submitted = std::max(share.last_submitted, job->submitted);
  share.jobs.insert(job);
}

void FairQueue::Erase(const std::shared_ptr<ScheduledJob>& job) {
  const auto share = shares_.find(job->request->caller.identity);
  if (share != shares_.end()) share->second.jobs.erase(job);
}

bool FairQueue::IsShared(Clock::time_point since) const {
  return std::count_if(shares_.begin(), shares_.end(), [&](const auto& share) {
           return !share.second.jobs.empty() ||
                  share.second.last_submitted >= since;
         }) > 1;
}

FairQueue::Walk::Walk(FairQueue* queue) : queue_(queue) {
  for (auto& [identity, share] : queue_->shares_) {
    if (!share.jobs.empty()) places_.push_back({&share, share.jobs.begin()});
  }
}

std::shared_ptr<ScheduledJob> FairQueue::Walk::Head() {
  head_ = nullptr;
  for (Place& place : places_) {
    if (place.at == place.share->jobs.end()) continue;
    if (head_ == nullptr || place.share->service < head_->share->service) {
      head_ = &place;
    }
  }
  return head_ == nullptr ? nullptr : *head_->at;
}

void FairQueue::Walk::PassOver() { ++head_->at; }

void FairQueue::Walk::Take(double seconds) {
  Share& share = *head_->share;
  head_->at = share.jobs.erase(head_->at);
  queue_->served_ = std::max(queue_->served_, share.service);
  share.service += seconds / share.weight;
}

void FairQueue::Walk::PutBack(const std::shared_ptr<ScheduledJob>& job) {
  Jobs& jobs = head_->share->jobs;
  const auto again = jobs.insert(job).first;
  // Behind those that were passed over it is the next to be seen.
  if (head_->at == jobs.end() || std::next(again) == head_->at) {
    head_->at = again;
  }
}

}  // namespace attendant::server
