// THE public header of the kernels: which kernel runs what, Plan, Launch.
//
//   ASSIGN_OR_RETURN(AttentionPlan plan, PlanAttention(device, problems));
//   // memory as plan says: workspace, control (zeroed once), descriptors
//   RETURN_IF_ERROR(plan.Launch(context));
//   // CUDA: when the stream is done, read the repair flag with the results
//   if (flag != 0) RETURN_IF_ERROR(plan.Repair(context));
//
// Planning is host-only and needs no GPU. A plan is a grouped launch: problems
// of any shapes share it, each answered exactly as if it were alone (bitwise).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/problem.h"

namespace attendant::kernels {

namespace cpu {
class ThreadPool;
}  // namespace cpu

// What planning must know of a device.
struct DeviceProperties {
  int compute_capability = 0;  // 10 * major + minor, 90 for Hopper; 0 = CPU
  int num_sms = 1;             // CPU: worker threads
  int64_t shared_memory_per_block_optin = 0;  // bytes; CPU: 0
};

// One row of the capability table: what a kernel can do.
struct Capability {
  std::string_view kernel;  // "cpu", "sm80", "sm90"
  std::string_view op;      // "forward"
  int min_compute_capability;
  int max_compute_capability;
  bool fp32, fp16, bf16;  // input types; output is the input's type or fp32
  int64_t max_head_dim;
  bool boolean_mask, additive_mask, alibi, softcap, sinks, window;
};

// Memory and device handles of one launch. Pointers are aligned to 256 bytes
// and live until the launch's work is done.
struct LaunchContext {
  void* stream = nullptr;                  // cudaStream_t; CPU: unused
  cpu::ThreadPool* thread_pool = nullptr;  // CPU only
  // plan.workspace_bytes() of device memory (CPU: host), contents undefined.
  void* workspace = nullptr;
  // plan.control_bytes() of device memory, zero before the first launch that
  // uses it; every launch leaves it zero again, but for the repair flag.
  void* control = nullptr;
  // plan.descriptor_bytes() each of pinned host and of device memory. Launch
  // fills the first and enqueues its copy into the second on the stream.
  void* host_descriptors = nullptr;
  void* device_descriptors = nullptr;
  // CPU only. True, from some time on for good, if nobody wants the results any
  // more: Launch then soon returns CANCELLED, and they are undefined. Asked
  // often, by all threads at once. Null: never.
  const std::function<bool()>* unwanted = nullptr;
};

// A kernel's share of a plan. Written by each kernel, held by AttentionPlan.
class KernelPlan {
 public:
  virtual ~KernelPlan() = default;
  virtual int64_t workspace_bytes() const = 0;
  virtual int64_t control_bytes() const { return 0; }
  virtual int64_t descriptor_bytes() const { return 0; }
  // Device scratch that belongs to problem `index` of this kernel's list.
  virtual int64_t workspace_bytes_of(size_t index) const = 0;
  // CUDA: enqueues on the stream and returns. CPU: computes and returns.
  virtual absl::Status Launch(const LaunchContext& context) const = 0;
  // Byte offset in control of an int32 that is non-zero after a launch if some
  // tile must be redone by Repair; -1 = this kernel needs no repair.
  virtual int64_t repair_flag_offset() const { return -1; }
  // Redoes flagged tiles (0 * NaN from a masked position) and clears the flag.
  virtual absl::Status Repair(const LaunchContext&) const {
    return absl::OkStatus();
  }
};

// A kernel: its table row, its finer rule, its planner.
struct KernelEntry {
  Capability capability;
  // Empty if the row really serves this problem on this device (alignment, head
  // dim pairs, ...), else why not. Called after the row's own fields matched.
  std::string (*why_not)(const DeviceProperties&, const AttentionProblem&);
  absl::StatusOr<std::unique_ptr<KernelPlan>> (*plan)(
      const DeviceProperties&, std::span<const AttentionProblem* const>);
};

// Every kernel of this build, best first. The source of GetServerInfo's table.
std::span<const KernelEntry> Kernels();

// The best kernel that serves `problem` on `device`. Errors: UNIMPLEMENTED,
// naming what no kernel of this device has.
absl::StatusOr<const KernelEntry*> FindKernel(const DeviceProperties& device,
                                              const AttentionProblem& problem);

class AttentionPlan {
 public:
  AttentionPlan() = default;
  AttentionPlan(AttentionPlan&&) = default;
  AttentionPlan& operator=(AttentionPlan&&) = default;

  int64_t workspace_bytes() const { return workspace_bytes_; }
  int64_t control_bytes() const { return control_bytes_; }
  int64_t descriptor_bytes() const { return descriptor_bytes_; }
  // Of problem `index` in the order given to PlanAttention.
  std::string_view kernel_name(size_t index) const;
  int64_t workspace_bytes_of(size_t index) const;

  absl::Status Launch(const LaunchContext& context) const;
  // Offsets in control of the int32 flags to read back with the results.
  const std::vector<int64_t>& repair_flag_offsets() const {
    return repair_flag_offsets_;
  }
  // Call if any flag was non-zero; enqueues the redone tiles.
  absl::Status Repair(const LaunchContext& context) const;

 private:
  friend absl::StatusOr<AttentionPlan> PlanAttention(
      const DeviceProperties&, std::span<const AttentionProblem>,
      std::string_view);
  struct Part {
    const KernelEntry* kernel = nullptr;
    std::unique_ptr<KernelPlan> plan;
    int64_t workspace_offset = 0;
    int64_t control_offset = 0;
    int64_t descriptor_offset = 0;
  };
  struct Place {
    size_t part;
    size_t index;
  };
  LaunchContext ContextOf(const Part& part, const LaunchContext& whole) const;

  std::vector<Part> parts_;
  std::vector<Place> places_;
  std::vector<int64_t> repair_flag_offsets_;
  int64_t workspace_bytes_ = 0;
  int64_t control_bytes_ = 0;
  int64_t descriptor_bytes_ = 0;
};

// Plans one grouped launch. `problems` (and the host spans they name) must
// outlive the plan. `only_kernel` restricts the choice to one row of the table
// (for tests and benchmarks); empty = the best. Errors: UNIMPLEMENTED as
// FindKernel; INVALID_ARGUMENT for a problem no planner can accept.
absl::StatusOr<AttentionPlan> PlanAttention(
    const DeviceProperties& device, std::span<const AttentionProblem> problems,
    std::string_view only_kernel = {});

}  // namespace attendant::kernels
