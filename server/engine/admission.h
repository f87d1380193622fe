// Whether a request may enter: bounds on what can ever fit, on what is queued,
// and on what its deadline allows. Pure functions of what they are given.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "server/engine/attention_engine.h"
#include "server/engine/service_rate.h"

namespace attendant::server {

// Fixed at start.
struct QueueLimits {
  int64_t max_queued_requests = 0;
  int64_t max_queued_bytes = 0;
  double max_queued_flops = 0;
  int64_t host_pool_bytes = 0;
  int64_t device_pool_bytes = -1;  // -1 = no device memory of its own
  double cost_per_byte = 0;        // FLOPs in the time a byte is moved

  // FLOPs and bytes in one number, for estimates.
  double Cost(double flops, int64_t bytes) const {
    return flops + cost_per_byte * static_cast<double>(bytes);
  }
};

// What is in the engine at one moment.
struct QueueLoad {
  int64_t queued_requests = 0;
  int64_t queued_bytes = 0;
  double queued_flops = 0;
  double cost_left = 0;   // of everything not done
  double cost_ahead = 0;  // of what would go before the new request
  // Of those queued, the identity's own.
  int64_t own_requests = 0;
  int64_t own_bytes = 0;
  double own_flops = 0;
};

// INVALID_ARGUMENT, naming the bound, if not even an idle engine takes it.
absl::Status CheckCanEverFit(const ValidatedRequest& request,
                             const QueueLimits& limits);

// RESOURCE_EXHAUSTED if there is no place now.
absl::Status CheckRoom(const ValidatedRequest& request,
                       const QueueLimits& limits, const QueueLoad& load,
                       const ServiceRate& rate);

// DEADLINE_EXCEEDED if `remaining` is used up or too short even for an idle
// device; RESOURCE_EXHAUSTED if it is too short for what is queued ahead. What
// is known of the device's speed counts with half its time only.
absl::Status CheckDeadline(const ValidatedRequest& request,
                           const QueueLimits& limits, const QueueLoad& load,
                           const ServiceRate& rate, Clock::duration remaining);

// Milliseconds after which a refused caller should try again.
int64_t RetryMs(double cost_left, const ServiceRate& rate);

// Input and output block together, as the pools count them: the device's, and
// the host's, which has no room for what lies in regions.
int64_t BlockBytes(const ValidatedRequest& request);
int64_t HostBlockBytes(const ValidatedRequest& request);

}  // namespace attendant::server
