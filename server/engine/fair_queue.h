// The jobs that have an item to be taken, in the order in which they are
// served: among identities start-time fair queueing (Goyal, Vin, Cheng 1996:
// the one that had least service for its weight goes first; who comes back may
// claim a little of the time that it did not use, so that its few requests that
// come at once do not take turns with a long queue), within one identity the
// earliest key. With one identity it is the order of the keys.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/engine/scheduled_job.h"

namespace attendant::server {

// Not thread-safe.
class FairQueue {
 public:
  void Insert(const std::shared_ptr<ScheduledJob>& job);
  void Erase(const std::shared_ptr<ScheduledJob>& job);
  // True if jobs of more than one identity wait or were submitted since then.
  bool IsShared(Clock::time_point since) const;

 private:
  struct EarlierKey {
    bool operator()(const std::shared_ptr<ScheduledJob>& a,
                    const std::shared_ptr<ScheduledJob>& b) const {
      return std::pair(a->key, a->number) < std::pair(b->key, b->number);
    }
  };
  using Jobs = std::set<std::shared_ptr<ScheduledJob>, EarlierKey>;
  struct Share {
    Jobs jobs;
    double weight = 1;
    double service = 0;  // virtual time: seconds / weight of what it had
    Clock::time_point last_submitted;
  };

 public:
  // One look at the queue, for one batch. The queue must not change meanwhile
  // but by it.
  class Walk {
   public:
    explicit Walk(FairQueue* queue);

    // The job to look at; null = there is no other.
    std::shared_ptr<ScheduledJob> Head();
    // Its item does not fit: look at the next of its identity.
    void PassOver();
    // Out of the queue it goes, and its identity had `seconds` of service.
    void Take(double seconds);
    // The job just taken has another item.
    void PutBack(const std::shared_ptr<ScheduledJob>& job);

   private:
    // A share, and its next job to be seen.
    struct Place {
      Share* share;
      Jobs::iterator at;
    };
    FairQueue* const queue_;
    std::vector<Place> places_;  // in the order of the identities' names
    Place* head_ = nullptr;
  };

 private:
  std::map<std::string, Share> shares_;  // by identity; a policy has few
  double served_ = 0;  // virtual time of the identity that was served last
};

}  // namespace attendant::server
