// Jobs with the same ordering key stand in line: one after the other.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <string>

#include "server/engine/scheduled_job.h"

namespace attendant::server {

// Not thread-safe. Jobs without a key stand in no line.
class OrderingLines {
 public:
  void Enter(ScheduledJob* job) {
    const std::string& key = job->request->ordering_key;
    if (!key.empty()) lines_[key].push_back(job);
  }

  // True if nobody stands before the job.
  bool IsFirst(const ScheduledJob& job) const {
    const auto line = lines_.find(job.request->ordering_key);
    return line == lines_.end() || line->second.front() == &job;
  }

  // The job goes. Who is first in its place now, if it was first; else null.
  ScheduledJob* Leave(ScheduledJob* job) {
    const auto found = lines_.find(job->request->ordering_key);
    if (found == lines_.end()) return nullptr;
    std::deque<ScheduledJob*>& line = found->second;
    const bool was_first = line.front() == job;
    line.erase(std::find(line.begin(), line.end(), job));
    if (line.empty()) {
      lines_.erase(found);
      return nullptr;
    }
    return was_first ? line.front() : nullptr;
  }

 private:
  std::map<std::string, std::deque<ScheduledJob*>> lines_;
};

}  // namespace attendant::server
