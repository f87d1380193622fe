#include "server/regions/event_waits.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "server/regions/region_memory.h"

namespace attendant::server {
namespace {

constexpr std::chrono::microseconds kPause{20};

}  // namespace

std::vector<void*> ReadyEventsOf(const ValidatedRequest& request) {
  std::vector<void*> events;
  const auto add = [&](const TensorPlace& place) {
    void* event = place.in_region() ? place.region->ready_event() : nullptr;
    if (event != nullptr &&
        std::find(events.begin(), events.end(), event) == events.end()) {
      events.push_back(event);
    }
  };
  for (const ValidatedRequest::Image& image : request.images) add(image.place);
  add(request.output_place);
  add(request.lse_place);
  return events;
}

EventWaits::~EventWaits() {
  {
    std::lock_guard lock(mu_);
    stopped_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void EventWaits::After(const std::vector<void*>& events,
                       std::function<bool()> given_up,
                       std::function<void(absl::Status)> then) {
  if (events.empty()) return then(absl::OkStatus());
  auto mark = device_->MarkAfter(events);
  if (!mark.ok()) return then(mark.status());
  if (*mark == nullptr) return then(absl::OkStatus());
  std::lock_guard lock(mu_);
  waits_.push_back({*std::move(mark), std::move(given_up), std::move(then)});
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  changed_.notify_all();
}

std::vector<std::pair<EventWaits::Wait, absl::Status>> EventWaits::TakeEnded() {
  std::vector<std::pair<Wait, absl::Status>> ended;
  const auto keep = [&](Wait& wait) {
    absl::Status status;
    if (stopped_ || wait.given_up()) {
      status = absl::CancelledError("nobody waits for the tensors any more");
    } else {
      const absl::StatusOr<bool> reached = wait.mark->reached();
      if (reached.ok() && !*reached) return true;
      status = reached.status();
    }
    ended.emplace_back(std::move(wait), std::move(status));
    return false;
  };
  waits_.erase(std::stable_partition(waits_.begin(), waits_.end(), keep),
               waits_.end());
  return ended;
}

void EventWaits::Run() {
  std::unique_lock lock(mu_);
  while (true) {
    changed_.wait(lock, [this] { return stopped_ || !waits_.empty(); });
    auto ended = TakeEnded();
    const bool last = stopped_ && waits_.empty();
    lock.unlock();
    for (auto& [wait, status] : ended) wait.then(std::move(status));
    ended.clear();
    if (last) return;
    std::this_thread::sleep_for(kPause);
    lock.lock();
  }
}

}  // namespace attendant::server
