#include "server/fair_queue.h"

#include <algorithm>
#include <iterator>

namespace attendant::server {

void FairQueue::Insert(const std::shared_ptr<ScheduledJob>& job) {
  const Caller& caller = job->request->caller;
  Share& share = shares_[caller.identity];
  // Who comes back has no claim on the time that it did not use.
  if (share.jobs.empty()) share.service = std::max(share.service, served_);
  share.weight = caller.weight;
  share.jobs.insert(job);
}

void FairQueue::Erase(const std::shared_ptr<ScheduledJob>& job) {
  const auto share = shares_.find(job->request->caller.identity);
  if (share != shares_.end()) share->second.jobs.erase(job);
}

FairQueue::Walk::Walk(FairQueue* queue) : queue_(queue) {
  for (auto& [identity, share] : queue_->shares_) {
    if (!share.jobs.empty()) next_.emplace(&share, share.jobs.begin());
  }
}

std::shared_ptr<ScheduledJob> FairQueue::Walk::Head() {
  head_ = nullptr;
  for (const auto& [share, at] : next_) {
    if (at == share->jobs.end()) continue;
    if (head_ == nullptr || share->service < head_->service) head_ = share;
  }
  return head_ == nullptr ? nullptr : *next_[head_];
}

void FairQueue::Walk::PassOver() { ++next_[head_]; }

void FairQueue::Walk::Take(double seconds) {
  Jobs::iterator& at = next_[head_];
  at = head_->jobs.erase(at);
  queue_->served_ = std::max(queue_->served_, head_->service);
  head_->service += seconds / head_->weight;
}

void FairQueue::Walk::PutBack(const std::shared_ptr<ScheduledJob>& job) {
  Jobs::iterator& at = next_[head_];
  const auto again = head_->jobs.insert(job).first;
  // Behind those that were passed over it is the next to be seen.
  if (at == head_->jobs.end() || std::next(again) == at) at = again;
}

}  // namespace attendant::server
