#include "server/monitoring/recent_errors.h"

#include <utility>

namespace attendant::server {

void RecentErrors::Add(RecentError error) {
  if (error.message.size() > kMaxMessage) {
    error.message.resize(kMaxMessage - 3);
    error.message += "...";
  }
  std::lock_guard lock(mu_);
  errors_.push_front(std::move(error));
  if (errors_.size() > kCapacity) errors_.pop_back();
}

std::vector<RecentError> RecentErrors::NewestFirst() const {
  std::lock_guard lock(mu_);
  return {errors_.begin(), errors_.end()};
}

}  // namespace attendant::server
