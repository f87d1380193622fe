// The engine: admission, queue, batching, execution of attention jobs on one
// device. Knows nothing of gRPC. Implemented by scheduler + executors.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/attention.h"
#include "server/engine/work_item.h"
#include "server/request/host_memory.h"
#include "server/request/problem_validator.h"

namespace attendant::server {

using Clock = std::chrono::steady_clock;

enum class Stage : int { kReceive, kQueue, kUpload, kKernel, kDownload, kSend };
inline constexpr int kNumStages = 6;
const char* StageName(Stage stage);

// What became of a job. Times are nanoseconds, indexed by Stage; the engine
// fills queue, upload, kernel and download, the caller the other two.
struct JobResult {
  absl::Status status;
  Stage stage = Stage::kQueue;          // the last one reached
  std::string kernel;                   // of the capability table
  int64_t exposed_ns[kNumStages] = {};  // adds up to the time in the engine
  int64_t busy_ns[kNumStages] = {};     // may overlap
  int64_t batch_requests = 0;
  int64_t batch_tokens = 0;
  int64_t workspace_bytes = 0;
  // Of upload, kernel and download: from the first item's begin to the last
  // one's end; both the clock's zero where there was none.
  struct Extent {
    Clock::time_point begin, end;
  };
  std::array<Extent, kNumStages> extents;
};

// One admitted request. The caller writes the input images into `input`, sets
// `done` and submits; the engine writes `output` and calls `done` exactly once,
// on a thread of its own, with no lock held. From Submit on the fields are the
// engine's; from `done` on they are the caller's again, `input` given back and,
// unless the status is OK, `output` null.
struct AttentionJob {
  std::unique_ptr<ValidatedRequest> request;
  HostBlock input;
  std::shared_ptr<HostBlock> output;
  Clock::time_point admitted;
  Clock::time_point
      deadline;  // effective: the earlier of caller's and server's
  std::function<void(JobResult)> done;

  // Of a job whose request arrives_in_parts, besides. Such a job is submitted
  // before its input is there; each of its items is computed once
  // InputArrived told of it.
  std::vector<ItemRange> ranges;  // its items; constant after admission
  // O and LSE of the item are in `output`; before `done`, on its thread.
  std::function<void(const ItemRange&)> item_done;
  // Holds the memory of `input` (moved out of it) for as long as the engine
  // needs it: the caller may still write there when the job has ended.
  std::shared_ptr<HostBlock> input_keeper;
  // Set before the last InputArrived.
  std::atomic<Clock::time_point> input_complete{Clock::time_point()};
};

// Gauges, all read in one moment.
struct EngineSnapshot {
  int64_t queued_requests = 0;
  int64_t running_requests = 0;
  int64_t queued_bytes = 0;
  double queued_flops = 0;
  int64_t host_pool_capacity_bytes = 0, host_pool_used_bytes = 0;
  int64_t device_reserved_bytes = 0, device_used_bytes = 0;
  int64_t device_peak_bytes = 0, device_workspace_bytes = 0;
  int64_t launches = 0;  // since start
  double launched_flops = 0;
  int64_t uploaded_bytes = 0, downloaded_bytes = 0;
  int64_t repairs = 0;
  // Answers recomputed in idle time, see self_check.h.
  int64_t self_checks_right = 0, self_checks_wrong = 0, self_checks_dropped = 0;
  bool healthy = true;  // false after a sticky device error
  std::string unhealthy_reason;
};

struct DeviceDescription {
  bool is_cuda = false;
  int index = 0;
  std::string uuid, name, instruction_set;
  int64_t memory_bytes = 0;
  kernels::DeviceProperties properties;
  // 16-bit operations a second at the highest clock; 0 = not known.
  double peak_flops = 0;
};

class RegionDevice;

class AttentionEngine {
 public:
  virtual ~AttentionEngine() = default;

  virtual const DeviceDescription& device() const = 0;
  // What regions ask of the device; null on a CPU.
  virtual RegionDevice* region_device() { return nullptr; }

  // Takes pool memory for both blocks and a place in the queue. Errors:
  // INVALID_ARGUMENT (can never fit), RESOURCE_EXHAUSTED with a retry hint,
  // DEADLINE_EXCEEDED, UNAVAILABLE (draining or unhealthy). Dropping the job
  // without Submit gives everything back.
  virtual absl::StatusOr<std::shared_ptr<AttentionJob>> Admit(
      std::unique_ptr<ValidatedRequest> request,
      Clock::time_point deadline) = 0;

  // Runs `copy(part, num_parts)` for every part on the engine's copy threads
  // (never on gRPC's), then `then`. For tensor bytes into job.input.
  virtual void CopyAsync(int num_parts, std::function<void(int)> copy,
                         std::function<void()> then) = 0;

  virtual void Submit(std::shared_ptr<AttentionJob> job) = 0;
  // Everything that item `index` of job->ranges reads is in the input block.
  // Once for each item of a submitted job that arrives in parts.
  virtual void InputArrived(const std::shared_ptr<AttentionJob>& job,
                            size_t index) = 0;
  // Ends a job with CANCELLED as soon as that is safe; no effect once done. A
  // job that is not yet submitted ends at its Submit.
  virtual void Cancel(const std::shared_ptr<AttentionJob>& job) = 0;

  // No more Admit; returns when all jobs are done or dropped or `deadline` has
  // passed. Jobs that are left when the engine goes end with UNAVAILABLE.
  virtual void Drain(Clock::time_point deadline) = 0;

  virtual EngineSnapshot Snapshot() const = 0;
};

struct EngineOptions {
  enum class Backend { kAuto, kCpu, kCuda } backend = Backend::kAuto;
  std::string cuda_device;  // index or UUID; empty = the first usable one
  int cpu_threads = 0;      // 0 = all cores
  int copy_threads = 0;     // 0 = a quarter of the cores, at least 1
  int64_t host_pool_bytes = int64_t{4} << 30;
  int64_t device_pool_bytes = int64_t{16} << 30;  // per GPU
  // Overwrite a block of the host pool with zeros when it is given back.
  bool scrub_host_pool = false;
  int64_t max_queued_requests = 1024;
  int64_t max_queued_bytes = int64_t{4} << 30;
  double max_queued_flops = 1e17;
  // GPU: a batch that takes so long beyond what was expected means that the
  // device is lost. Zero = never.
  std::chrono::seconds stuck_after{30};
  std::chrono::milliseconds max_age{1000};  // ageing: older goes first
  // Share of the requests whose answers are checked in idle time, and the bytes
  // of the largest of them: see self_check.h.
  double self_check_share = 0.001;
  int64_t self_check_bytes = int64_t{64} << 20;
  // Largest piece of a request that is scheduled as one work item, if the
  // request can be cut so far (at batch and KV-head borders). FLOPs: 0 = about
  // 50 ms of a CPU's threads, 1e12 on a GPU.
  int64_t work_item_bytes = int64_t{16} << 20;
  double work_item_flops = 0;
  // A batch takes at most so much, or one work item: no more bytes than one
  // item, so that a large request's own upload, kernels and download overlap.
  // FLOPs: 0 = as work_item_flops on a CPU, 4 times that on a GPU. While
  // several identities use the device, no more than work_item_flops.
  int64_t max_batch_bytes = int64_t{16} << 20;
  double max_batch_flops = 0;
};

// Jobs, blocks and calls into the engine must be gone before it is destroyed.
// Logs loudly which device was chosen and why. kCuda fails with
// FAILED_PRECONDITION without a usable GPU; kAuto takes the CPU then.
absl::StatusOr<std::unique_ptr<AttentionEngine>> CreateEngine(
    const EngineOptions& options);

}  // namespace attendant::server
