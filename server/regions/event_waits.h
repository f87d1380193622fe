// Calls whose tensors other processes are still writing, with an event that
// says when they are done.
//
// They wait here, not in the device's queues: a producer that is late, or never
// gets there, holds up its own call alone.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "server/regions/region_device.h"
#include "server/request/problem_validator.h"

namespace attendant::server {

// The events of the regions that a request names, each once.
std::vector<void*> ReadyEventsOf(const ValidatedRequest& request);

// Thread-safe. Looks at the device on a thread of its own, while anybody waits.
class EventWaits {
 public:
  // `device` null = no region has events. It outlives this.
  explicit EventWaits(RegionDevice* device) : device_(device) {}
  ~EventWaits();  // whoever waits is told CANCELLED

  // Calls `then` once: at once, if the device has got beyond the events as they
  // were last recorded; else on this object's thread, when it has, or soon
  // after `given_up` is true (CANCELLED). Or with the device's error.
  void After(const std::vector<void*>& events, std::function<bool()> given_up,
             std::function<void(absl::Status)> then);

 private:
  struct Wait {
    std::unique_ptr<DeviceMark> mark;
    std::function<bool()> given_up;
    std::function<void(absl::Status)> then;
  };
  void Run();
  // Moves those out of waits_ that have ended (mu_ held).
  std::vector<std::pair<Wait, absl::Status>> TakeEnded();

  RegionDevice* const device_;
  std::mutex mu_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Wait> waits_;
  bool stopped_ = false;
  std::thread thread_;  // started by the first who waits
};

}  // namespace attendant::server
