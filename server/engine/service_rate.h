// How fast the device works off what is queued, measured.
#pragma once

#include <optional>

namespace attendant::server {

// Not thread-safe. Learns from batches that took long enough for their fixed
// costs not to matter, recent ones more, so that it never calls a device slow
// because it was given small work.
class ServiceRate {
 public:
  void Add(double cost, double seconds) {
    if (seconds < kLeastSeconds) return;
    cost_ = kKeep * cost_ + cost;
    seconds_ = kKeep * seconds_ + seconds;
  }

  // Seconds that work of `cost` takes; nothing as long as nothing is known.
  std::optional<double> Seconds(double cost) const {
    if (cost_ <= 0) return std::nullopt;
    return cost * seconds_ / cost_;
  }

 private:
  static constexpr double kLeastSeconds = 1e-3;
  static constexpr double kKeep = 0.9;
  double cost_ = 0;
  double seconds_ = 0;
};

}  // namespace attendant::server
