#include "server/engine/admission.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/engine/range_pool.h"
#include "server/request/errors.h"

namespace attendant::server {
namespace {

constexpr double kTrustInEstimates = 0.5;

int64_t RoundUp(int64_t bytes) {
  constexpr int64_t kStep = RangePool::kAlignment;
  return (bytes + kStep - 1) / kStep * kStep;
}

absl::Status CheckBytes(int64_t bytes, int64_t bound, const char* of_what) {
  if (bytes <= bound) return absl::OkStatus();
  return InvalidField("input and output", absl::StrCat(bytes, " bytes"),
                      absl::StrCat("at most ", bound, " bytes, ", of_what));
}

double CostOf(const ValidatedRequest& request, const QueueLimits& limits) {
  return limits.Cost(request.flops,
                     request.input_bytes + request.output_block_bytes());
}

// What one identity may fill of the queue.
absl::Status CheckOwnShare(const ValidatedRequest& request,
                           const QueueLimits& limits, const QueueLoad& load,
                           int64_t retry_ms) {
  const Caller& caller = request.caller;
  if (caller.queue_share >= 1) return absl::OkStatus();
  const auto check = [&](const char* what, double value, double limit) {
    // One request always has its place.
    if (load.own_requests == 0 || value <= limit * caller.queue_share) {
      return absl::OkStatus();
    }
    return Overloaded(
        absl::StrCat(what, " of '", caller.identity, "' with this request"),
        absl::StrCat(value),
        absl::StrCat("at most ", limit * caller.queue_share,
                     ", its share of the queue"),
        retry_ms);
  };
  RETURN_IF_ERROR(check("queued requests",
                        static_cast<double>(load.own_requests + 1),
                        static_cast<double>(limits.max_queued_requests)));
  RETURN_IF_ERROR(check(
      "queued bytes", static_cast<double>(load.own_bytes + BlockBytes(request)),
      static_cast<double>(limits.max_queued_bytes)));
  return check("queued FLOPs", load.own_flops + request.flops,
               limits.max_queued_flops);
}

}  // namespace

int64_t BlockBytes(const ValidatedRequest& request) {
  return RoundUp(request.input_bytes) + RoundUp(request.output_block_bytes());
}

int64_t HostBlockBytes(const ValidatedRequest& request) {
  return RoundUp(request.host_input_bytes()) +
         RoundUp(request.host_output_bytes());
}

absl::Status CheckCanEverFit(const ValidatedRequest& request,
                             const QueueLimits& limits) {
  const int64_t bytes = BlockBytes(request);
  RETURN_IF_ERROR(CheckBytes(HostBlockBytes(request), limits.host_pool_bytes,
                             "the host memory pool"));
  RETURN_IF_ERROR(
      CheckBytes(bytes, limits.max_queued_bytes, "the queue's bytes"));
  if (limits.device_pool_bytes >= 0) {
    RETURN_IF_ERROR(
        CheckBytes(bytes, limits.device_pool_bytes, "the device memory pool"));
  }
  if (request.flops > limits.max_queued_flops) {
    return InvalidField("work", absl::StrCat(request.flops, " FLOPs"),
                        absl::StrCat("at most ", limits.max_queued_flops,
                                     " FLOPs, the queue's work"));
  }
  return absl::OkStatus();
}

absl::Status CheckRoom(const ValidatedRequest& request,
                       const QueueLimits& limits, const QueueLoad& load,
                       const ServiceRate& rate) {
  const int64_t retry_ms = RetryMs(load.cost_left, rate);
  RETURN_IF_ERROR(CheckOwnShare(request, limits, load, retry_ms));
  if (load.queued_requests >= limits.max_queued_requests) {
    return Overloaded("queued requests", absl::StrCat(load.queued_requests),
                      absl::StrCat("below ", limits.max_queued_requests),
                      retry_ms);
  }
  const int64_t bytes = load.queued_bytes + BlockBytes(request);
  if (bytes > limits.max_queued_bytes) {
    return Overloaded("queued bytes with this request", absl::StrCat(bytes),
                      absl::StrCat("at most ", limits.max_queued_bytes),
                      retry_ms);
  }
  const double flops = load.queued_flops + request.flops;
  if (flops > limits.max_queued_flops) {
    return Overloaded("queued FLOPs with this request", absl::StrCat(flops),
                      absl::StrCat("at most ", limits.max_queued_flops),
                      retry_ms);
  }
  return absl::OkStatus();
}

absl::Status CheckDeadline(const ValidatedRequest& request,
                           const QueueLimits& limits, const QueueLoad& load,
                           const ServiceRate& rate, Clock::duration remaining) {
  if (remaining <= Clock::duration::zero()) {
    return absl::DeadlineExceededError(
        "the deadline passed before the request was admitted");
  }
  const double own_cost = CostOf(request, limits);
  const auto own = rate.Seconds(own_cost);
  if (!own.has_value()) return absl::OkStatus();
  const double seconds = std::chrono::duration<double>(remaining).count();
  // An idle device is tried whatever was measured: only work that runs can
  // correct a speed that was once measured too low.
  if (load.cost_left <= 0) return absl::OkStatus();
  if (*own * kTrustInEstimates > seconds) {
    return absl::DeadlineExceededError(
        absl::StrCat("the work takes about ", *own * 1e3,
                     " ms, the deadline is in ", seconds * 1e3, " ms"));
  }
  const double ahead = *rate.Seconds(load.cost_ahead) + *own;
  if (ahead * kTrustInEstimates > seconds) {
    return Overloaded(
        "expected time to the answer", absl::StrCat(ahead * 1e3, " ms"),
        absl::StrCat("within the deadline, in ", seconds * 1e3, " ms"),
        RetryMs(load.cost_left, rate));
  }
  return absl::OkStatus();
}

int64_t RetryMs(double cost_left, const ServiceRate& rate) {
  constexpr double kUnknown = 50, kLeast = 5, kMost = 10'000;
  const auto seconds = rate.Seconds(cost_left);
  if (!seconds.has_value()) return static_cast<int64_t>(kUnknown);
  return static_cast<int64_t>(std::clamp(*seconds * 1e3, kLeast, kMost));
}

}  // namespace attendant::server
