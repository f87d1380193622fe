#include "kernels/cpu/partial_slots.h"

#include "kernels/base/check.h"

namespace attendant::kernels::cpu {

PartialSlots::PartialSlots(float* memory, int64_t slot_floats, int num_slots) {
  for (int i = num_slots - 1; i >= 0; --i) {
    free_.push_back(memory + i * slot_floats);
  }
}

float* PartialSlots::Enter(int64_t group, int64_t num_tasks) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto [entry, is_new] = groups_.try_emplace(group);
  if (is_new) {
    ATTENDANT_CHECK(!free_.empty());
    entry->second = {free_.back(), num_tasks};
    free_.pop_back();
  }
  return entry->second.slot;
}

bool PartialSlots::Leave(int64_t group) {
  std::lock_guard<std::mutex> lock(mu_);
  return --groups_.at(group).left == 0;
}

void PartialSlots::Release(int64_t group) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto entry = groups_.find(group);
  free_.push_back(entry->second.slot);
  groups_.erase(entry);
}

}  // namespace attendant::kernels::cpu
