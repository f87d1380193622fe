// Whose turn it is to look for events, among threads that all would.
//
// While there is little to do one thread looks: it does not wake another to
// take over, and for a while after an event it looks again and again instead of
// sleeping, for waking up takes longer than a small call. In a crowd all take
// part, and sleep when there is nothing.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

namespace attendant::server {

class PollTurns {
 public:
  using Clock = std::chrono::steady_clock;

  struct Options {
    // After an event, or a part of one, the one thread looks for so long before
    // it sleeps.
    std::chrono::microseconds watchful{};
    // Is there more on its way than one thread should see to? Asked often, by
    // any thread, with no lock held.
    std::function<bool()> crowded;
    // A thread that is away with an event for so long has its turn taken over.
    std::chrono::microseconds patience{500};
  };

  enum class Found { kEvent, kNothing, kTheEnd };
  // Looks once, or, if told to, waits for an event, a second or so at most.
  using Look = std::function<Found(bool wait)>;

  explicit PollTurns(Options options) : options_(std::move(options)) {}

  // Blocks until it is the caller's turn and `look` has found something. After
  // kTheEnd everybody may look, for that is what all will find.
  Found Next(const Look& look);

 private:
  void TakeTurn();
  void EndTurn(Found found);
  bool Crowded();
  bool IsVacant() const;  // mu_ held
  Found LookAlone(const Look& look);

  const Options options_;
  std::mutex mu_;  // guards all that follows
  std::condition_variable turn_;
  int looking_ = 0;          // threads that have a turn
  bool has_deputy_ = false;  // one of those that wait keeps an eye on the turn
  bool ended_ = false;
  Clock::time_point left_;           // when the last turn ended
  Clock::time_point crowded_until_;  // crowds come and go fast
};

}  // namespace attendant::server
