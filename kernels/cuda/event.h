// Owner of a CUDA event.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace attendant::kernels::cuda {

// An event of the device that was current at Create. Move-only.
class Event {
 public:
  enum class Kind {
    kOrder,   // for waits only; the cheapest
    kTiming,  // also records when it was reached
  };
  // `blocking`: Synchronize sleeps instead of spinning.
  static absl::StatusOr<Event> Create(Kind kind = Kind::kTiming,
                                      bool blocking = false);

  Event() = default;
  Event(Event&& other) noexcept
      : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~Event();

  cudaEvent_t get() const { return event_; }
  absl::Status Record(cudaStream_t stream) const;
  // Waits until the work before the last Record is done (at once if none was).
  absl::Status Synchronize() const;
  // True if that work is done. Never waits.
  absl::StatusOr<bool> IsDone() const;

 private:
  explicit Event(cudaEvent_t event) : event_(event) {}
  cudaEvent_t event_ = nullptr;
};

// Nanoseconds from `start` to `end`, both kTiming and reached.
absl::StatusOr<int64_t> ElapsedNanoseconds(const Event& start,
                                           const Event& end);

}  // namespace attendant::kernels::cuda
