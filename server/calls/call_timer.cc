#include "server/calls/call_timer.h"

#include <chrono>
#include <utility>

namespace attendant::server {

using std::chrono::milliseconds;
using std::chrono::system_clock;

CallTimer::CallTimer(grpc::GenericCallbackServerContext* context,
                     int64_t default_deadline_ms)
    : context_(context), started_(Clock::now()) {
  const auto longest = milliseconds(default_deadline_ms);
  // Before the subtraction: no deadline is the clock's largest value.
  const system_clock::time_point now = system_clock::now();
  own_deadline_ = context->deadline() > now + longest;
  deadline_ = started_ + (own_deadline_ ? longest : context->deadline() - now);
}

void CallTimer::Start(std::function<void()> expired) {
  if (!own_deadline_) return;
  const auto left = deadline_ - Clock::now();
  alarm_.Set(system_clock::now() +
                 std::chrono::duration_cast<system_clock::duration>(left),
             [expired = std::move(expired)](bool fired) {
               if (fired) expired();
             });
}

absl::Status CallTimer::DeadlinePassed() {
  return absl::DeadlineExceededError("the deadline passed");
}

absl::Status CallTimer::WhyCancelled() const {
  // A deadline travels with 1 % of rounding, and the caller's own clock may
  // have ended the call a little before ours.
  const auto slack = milliseconds(5) + (deadline_ - started_) / 100;
  return Clock::now() + slack >= deadline_
             ? DeadlinePassed()
             : absl::CancelledError("the caller cancelled");
}

void CallTimer::CancelCall() {
  std::lock_guard lock(mu_);
  if (!done_) context_->TryCancel();
}

void CallTimer::Done() {
  alarm_.Cancel();
  std::lock_guard lock(mu_);
  done_ = true;
}

}  // namespace attendant::server
