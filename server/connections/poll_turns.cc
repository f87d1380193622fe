#include "server/connections/poll_turns.h"

#include <utility>

namespace attendant::server {
namespace {

using std::chrono::milliseconds;

// A crowd that was seen counts for so long.
constexpr milliseconds kCrowdStays{5};
// The deputy looks after the turn so often, while events come and in silence.
constexpr milliseconds kDeputyPeriod{1};
constexpr milliseconds kDeputyIdlePeriod{20};
constexpr milliseconds kSilence{100};
// A look that takes so long read or wrote some of a message: more will come.
constexpr std::chrono::microseconds kWork{8};

}  // namespace

PollTurns::Found PollTurns::Next(const Look& look) {
  while (true) {
    TakeTurn();
    const Found found = Crowded() ? look(/*wait=*/true) : LookAlone(look);
    EndTurn(found);
    if (found != Found::kNothing) return found;
  }
}

// The crowd, if there is one now, is known to all.
bool PollTurns::Crowded() {
  const bool now_crowded = options_.crowded();
  const Clock::time_point now = Clock::now();
  std::lock_guard lock(mu_);
  if (ended_) return true;
  const bool was_crowded = now < crowded_until_;
  if (now_crowded) crowded_until_ = now + kCrowdStays;
  if (now_crowded && !was_crowded) turn_.notify_all();
  return now_crowded || was_crowded;
}

bool PollTurns::IsVacant() const {
  return looking_ == 0 && Clock::now() - left_ >= options_.patience;
}

void PollTurns::TakeTurn() {
  const bool crowded = Crowded();
  std::unique_lock lock(mu_);
  // Whoever comes back finds his place free, unless it was taken over.
  if (!crowded && looking_ > 0) {
    const auto may_look = [this] {
      return ended_ || Clock::now() < crowded_until_ || IsVacant();
    };
    while (!may_look()) {
      if (has_deputy_) {
        turn_.wait(lock);
        continue;
      }
      has_deputy_ = true;
      turn_.wait_for(lock, Clock::now() - left_ < kSilence ? kDeputyPeriod
                                                           : kDeputyIdlePeriod);
      has_deputy_ = false;
    }
    // Of those that wait one has to be the deputy.
    if (!has_deputy_) turn_.notify_one();
  }
  ++looking_;
}

void PollTurns::EndTurn(Found found) {
  std::lock_guard lock(mu_);
  --looking_;
  left_ = Clock::now();
  if (found == Found::kTheEnd && !ended_) {
    ended_ = true;
    turn_.notify_all();
  }
}

// Nothing, if a crowd came, or nothing did for long.
PollTurns::Found PollTurns::LookAlone(const Look& look) {
  Clock::time_point now = Clock::now();
  Clock::time_point until = now + options_.watchful;
  while (now < until) {
    const Found found = look(/*wait=*/false);
    if (found != Found::kNothing) return found;
    if (options_.crowded()) return Found::kNothing;
    const Clock::time_point before = std::exchange(now, Clock::now());
    if (now - before >= kWork) until = now + options_.watchful;
  }
  return look(/*wait=*/true);
}

}  // namespace attendant::server
