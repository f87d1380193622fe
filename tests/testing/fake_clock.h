// A clock that stands still until a test moves it.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>

namespace attendant::testing {

// Thread-safe.
class FakeClock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  TimePoint Now() const {
    std::lock_guard lock(mu_);
    return now_;
  }
  void Advance(Duration duration) {
    std::lock_guard lock(mu_);
    now_ += duration;
  }
  // For what takes its clock as a function; the clock outlives it.
  std::function<TimePoint()> AsFunction() {
    return [this] { return Now(); };
  }

 private:
  mutable std::mutex mu_;
  TimePoint now_{std::chrono::hours(1000)};
};

}  // namespace attendant::testing
