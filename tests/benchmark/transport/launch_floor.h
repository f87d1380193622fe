// The least that a call through a GPU costs: copy up, launch, copy down, wait.
#pragma once

#include <cstddef>

namespace attendant::benchmark {

// On the current device and a stream of its own. Not copyable.
class LaunchFloor {
 public:
  LaunchFloor(size_t bytes_up, size_t bytes_down);
  ~LaunchFloor();
  LaunchFloor(const LaunchFloor&) = delete;
  LaunchFloor& operator=(const LaunchFloor&) = delete;

  bool ready() const { return ready_; }  // false without a GPU
  bool Run();                            // blocks until the bytes are back

 private:
  const size_t up_, down_;
  bool ready_ = false;
  void* stream_ = nullptr;
  void* host_ = nullptr;
  void* device_ = nullptr;
};

}  // namespace attendant::benchmark
