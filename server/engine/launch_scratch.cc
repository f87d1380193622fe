#include "server/engine/launch_scratch.h"

namespace attendant::server {
namespace {

// A range of `bytes`; false if there is none now.
bool TakeRange(RangePool* pool, int64_t bytes, RangeHold* hold) {
  if (bytes == 0) return true;
  const auto offset = pool->Allocate(bytes);
  if (!offset.has_value()) return false;
  *hold = RangeHold(pool, *offset, bytes);
  return true;
}

}  // namespace

LaunchScratch::LaunchScratch(int num_slots, std::byte* device,
                             int64_t device_bytes, std::byte* host,
                             int64_t host_bytes)
    : device_(device),
      device_shared_(device + num_slots * kControlBytes),
      host_(host),
      device_pool_(device_bytes - num_slots * kControlBytes),
      host_pool_(host_bytes) {}

bool LaunchScratch::Take(const kernels::AttentionPlan& plan, int slot,
                         Hold* hold) {
  *hold = Hold();
  const int64_t extra_control =
      plan.control_bytes() > kControlBytes ? plan.control_bytes() : 0;
  const auto flag_bytes =
      static_cast<int64_t>(plan.repair_flag_offsets().size() * sizeof(int32_t));
  if (!TakeRange(&device_pool_, plan.workspace_bytes(), &hold->workspace) ||
      !TakeRange(&device_pool_, extra_control, &hold->extra_control) ||
      !TakeRange(&device_pool_, plan.descriptor_bytes(), &hold->descriptors) ||
      !TakeRange(&host_pool_, plan.descriptor_bytes(),
                 &hold->host_descriptors) ||
      !TakeRange(&host_pool_, flag_bytes, &hold->flags)) {
    *hold = Hold();
    return false;
  }
  kernels::LaunchContext& context = hold->context;
  context.workspace = device_shared_ + hold->workspace.offset();
  context.control = extra_control > 0
                        ? device_shared_ + hold->extra_control.offset()
                        : control_of(slot);
  context.device_descriptors = device_shared_ + hold->descriptors.offset();
  context.host_descriptors = host_ + hold->host_descriptors.offset();
  hold->host_flags = reinterpret_cast<int32_t*>(host_ + hold->flags.offset());
  return true;
}

}  // namespace attendant::server
