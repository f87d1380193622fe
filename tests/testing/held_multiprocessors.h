// Keeps some of a GPU's multiprocessors busy, so that a launch finds the rest.
#pragma once

#include <memory>

#include "absl/status/statusor.h"

namespace attendant::testing {

// One block on each of `count` multiprocessors of the current CUDA device takes
// all of its shared memory and waits. Gone when this is destroyed.
class HeldMultiprocessors {
 public:
  // Returns when all are held. Errors: UNAVAILABLE if they cannot be had within
  // five seconds.
  static absl::StatusOr<std::unique_ptr<HeldMultiprocessors>> Hold(int count);
  ~HeldMultiprocessors();
  HeldMultiprocessors(const HeldMultiprocessors&) = delete;
  HeldMultiprocessors& operator=(const HeldMultiprocessors&) = delete;

 private:
  HeldMultiprocessors() = default;

  void* stream_ = nullptr;
  int* shared_ = nullptr;  // pinned: [0] != 0 = release, [1 + i] = block i runs
};

}  // namespace attendant::testing
