#include "server/regions/cuda_marks.h"

#include <cuda_runtime_api.h>

#include <mutex>
#include <utility>

#include "kernels/base/status_macros.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/device_guard.h"
#include "kernels/cuda/event.h"
#include "kernels/cuda/stream.h"
#include "server/request/errors.h"

namespace attendant::server {

using kernels::cuda::DeviceGuard;

// Streams that do nothing but wait. One for each mark: what waits for one
// caller must not wait for another.
class CudaMarks::Streams {
 public:
  struct Lane {
    kernels::cuda::Stream stream;
    kernels::cuda::Event event;
  };

  absl::StatusOr<Lane> Take() {
    std::lock_guard lock(mu_);
    if (taken_ >= kMostMarks) {
      constexpr int64_t kRetryMs = 50;
      return Overloaded("ready_event", "that more than 256 calls wait for",
                        "at most 256 at a time", kRetryMs);
    }
    Lane lane;
    if (!free_.empty()) {
      lane = std::move(free_.back());
      free_.pop_back();
    } else {
      ASSIGN_OR_RETURN(lane.stream, kernels::cuda::Stream::Create());
      ASSIGN_OR_RETURN(lane.event, kernels::cuda::Event::Create(
                                       kernels::cuda::Event::Kind::kOrder));
    }
    ++taken_;
    return lane;
  }
  // Of a mark that was not reached, the stream still waits: it goes.
  void GiveBack(Lane lane, bool reached) {
    std::lock_guard lock(mu_);
    --taken_;
    if (reached) free_.push_back(std::move(lane));
  }

 private:
  static constexpr int kMostMarks = 256;
  std::mutex mu_;  // guards what follows
  int taken_ = 0;
  std::vector<Lane> free_;
};

class CudaMarks::Mark final : public DeviceMark {
 public:
  Mark(int device, std::shared_ptr<Streams> lanes, Streams::Lane lane)
      : device_(device), lanes_(std::move(lanes)), lane_(std::move(lane)) {}
  ~Mark() override {
    const DeviceGuard guard(device_);
    lanes_->GiveBack(std::move(lane_), reached_);
  }
  absl::Status WaitFor(const std::vector<void*>& events) {
    for (void* event : events) {
      RETURN_IF_ERROR(lane_.stream.WaitFor(static_cast<cudaEvent_t>(event)));
    }
    return lane_.event.Record(lane_.stream.get());
  }
  absl::StatusOr<bool> reached() override {
    const DeviceGuard guard(device_);
    ASSIGN_OR_RETURN(reached_, lane_.event.IsDone());
    return reached_;
  }

 private:
  const int device_;
  const std::shared_ptr<Streams> lanes_;
  Streams::Lane lane_;
  bool reached_ = false;
};

CudaMarks::CudaMarks(int device)
    : device_(device), streams_(std::make_shared<Streams>()) {}

CudaMarks::~CudaMarks() = default;

absl::StatusOr<std::unique_ptr<DeviceMark>> CudaMarks::After(
    const std::vector<void*>& events) {
  const DeviceGuard guard(device_);
  std::vector<void*> pending;
  for (void* event : events) {
    const cudaError_t state = cudaEventQuery(static_cast<cudaEvent_t>(event));
    if (state == cudaSuccess) continue;
    (void)cudaGetLastError();
    if (kernels::cuda::IsStickyError(state)) {
      return kernels::cuda::CudaStatus(state, "ready_event");
    }
    if (state != cudaErrorNotReady) {
      return InvalidField("ready_event", cudaGetErrorName(state),
                          "of a process that still lives");
    }
    pending.push_back(event);
  }
  if (pending.empty()) return nullptr;
  ASSIGN_OR_RETURN(Streams::Lane lane, streams_->Take());
  auto mark = std::make_unique<Mark>(device_, streams_, std::move(lane));
  RETURN_IF_ERROR(mark->WaitFor(pending));
  return mark;
}

}  // namespace attendant::server
