// Workspace, control and descriptor memory of launches, from pools of fixed
// size.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"
#include "server/engine/range_pool.h"

namespace attendant::server {

// For one thread.
class LaunchScratch {
 public:
  // A slot's own control memory; a plan that needs more takes scratch.
  static constexpr int64_t kControlBytes = int64_t{1} << 20;

  // What one launch holds.
  struct Hold {
    RangeHold workspace, extra_control, descriptors, host_descriptors, flags;
    kernels::LaunchContext context;
    // One for each of the plan's repair flags, in pinned memory.
    int32_t* host_flags = nullptr;
  };

  // Control memory of num_slots slots lies first in `device`, and is zero
  // whenever no launch uses it. `host` is pinned. Neither is owned.
  LaunchScratch(int num_slots, std::byte* device, int64_t device_bytes,
                std::byte* host, int64_t host_bytes);

  // Replaces what *hold has by what the plan needs; false, and nothing held,
  // if it is not there now.
  bool Take(const kernels::AttentionPlan& plan, int slot, Hold* hold);

  std::byte* control_of(int slot) const {
    return device_ + slot * kControlBytes;
  }
  int64_t device_capacity() const { return device_pool_.capacity_bytes(); }
  int64_t host_capacity() const { return host_pool_.capacity_bytes(); }

 private:
  std::byte* const device_;
  std::byte* const device_shared_;  // behind the slots' control memory
  std::byte* const host_;
  RangePool device_pool_;
  RangePool host_pool_;
};

}  // namespace attendant::server
