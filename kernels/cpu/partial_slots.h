// Memory for the partial results of work whose keys are split over tasks.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace attendant::kernels::cpu {

// Hands out slots of equal size to groups of tasks. As many slots as threads
// are always enough: tasks start in rising order, so at most one group is begun
// and not wholly taken; whoever took its last task so far is still at it or at
// none, and every other group that holds a slot has a thread of its own.
// Thread-safe.
class PartialSlots {
 public:
  // `memory` is num_slots * slot_floats floats, not owned.
  PartialSlots(float* memory, int64_t slot_floats, int num_slots);

  // The slot of `group`, taken at its first call.
  float* Enter(int64_t group, int64_t num_tasks);
  // A task of the group has written its part. True for the last one, which then
  // merges and calls Release.
  bool Leave(int64_t group);
  void Release(int64_t group);

 private:
  struct Group {
    float* slot;
    int64_t left;  // tasks that have not left
  };
  std::mutex mu_;
  std::vector<float*> free_;         // guarded by mu_
  std::map<int64_t, Group> groups_;  // guarded by mu_
};

}  // namespace attendant::kernels::cpu
