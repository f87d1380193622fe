// Executes work items on a GPU, three batches under way: while one is computed
// the next is uploaded and the last is downloaded.
//
// One thread moves every batch from stage to stage as the device gets there, so
// that between stages the jobs that ended meanwhile are left out, and a launch
// is given to the device only when the one before is (nearly) done: a job that
// expires behind a busy device costs no launch.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "server/engine/attention_executor.h"
#include "server/engine/device_port.h"
#include "server/engine/launch_scratch.h"
#include "server/engine/planned_batch.h"

namespace attendant::server {

class CudaExecutor final : public AttentionExecutor {
 public:
  struct Options {
    kernels::DeviceProperties device;
    // See LaunchScratch; more than kNumSlots * kControlBytes.
    std::byte* device_scratch = nullptr;
    int64_t device_scratch_bytes = 0;
    // Pinned, for descriptors and flags.
    std::byte* host_scratch = nullptr;
    int64_t host_scratch_bytes = 0;
    // Of the device memory that ScheduledJob::device_range counts from.
    std::byte* device_memory = nullptr;
    // A batch of at most so many bytes that meets an idle device is given to it
    // whole, on one queue: no stage waits until this thread has seen the end
    // of the one before.
    int64_t at_once_bytes = 0;
    // How long the thread looks for work before it sleeps.
    Clock::duration watchful{};
    // A stage of the oldest batch that takes so long beyond four times what was
    // expected of it will never end: the device is given up. Zero = wait on.
    Clock::duration stuck_after{};
    std::function<Clock::time_point()> now = [] { return Clock::now(); };
  };

  // `source` and `port` outlive the executor. Without Start nothing runs but by
  // Step (for tests).
  CudaExecutor(Options options, WorkSource* source, DevicePort* port);
  ~CudaExecutor() override;

  // Zeroes control memory. Before the first Step or Start.
  absl::Status Prepare();
  // Starts the thread; `on_thread`, if any, runs first on it.
  void Start(std::function<void()> on_thread = {});
  void Wake() override;
  void Stop() override;

  // Moves whatever can be moved; false if nothing could.
  bool Step();
  bool busy() const { return !under_way_.empty() || pending_.has_value(); }

 private:
  enum class State { kUploading, kUploaded, kComputing, kDownloading };

  // A batch under way and all that it holds.
  struct Slot {
    int index = 0;
    State state = State::kUploading;
    PlannedBatch planned;
    LaunchScratch::Hold scratch;
    Clock::time_point stage_begin;
    double estimate_seconds = 0;
    bool repaired = false;
    bool at_once = false;  // all stages were enqueued together
  };

  void Run();
  bool SeesWorkSoon();
  bool AdvanceAll();
  absl::StatusOr<bool> Advance(Slot* slot);
  bool MayLaunch(const Slot& slot) const;
  // Expected, of what it was launched for.
  double SecondsLeft(const Slot& computing) const;
  absl::Status Launch(Slot* slot);
  absl::Status EnqueueKernels(Slot* slot);
  absl::Status ReadFlags(Slot* slot);
  absl::StatusOr<bool> EndCompute(Slot* slot);
  absl::Status Download(Slot* slot);
  absl::Status EnqueueDownload(Slot* slot);
  void EndStage(Slot* slot, Stage stage);

  bool PullOne();
  void PlanAndUpload(Batch batch);
  bool MayGoAtOnce(const PlannedBatch& planned) const;
  absl::Status Upload(Slot* slot);
  absl::Status UploadItem(DevicePort::Queue queue, const WorkItem& item,
                          Batch* batch);
  void HandleNoScratch(PlannedBatch planned);

  void Finish(Slot* slot, const absl::Status& status);
  void Fail(Slot* slot, const absl::Status& status);
  // Waits for the device and zeroes a slot's control memory: a launch that was
  // cut short may have left repair flags there.
  absl::Status ClearControl(const Slot& slot);
  void BreakDown(const absl::Status& status);
  bool IsStuck() const;
  void Remove(Slot* slot);

  const Options options_;
  WorkSource* const source_;
  DevicePort* const port_;

  // All but the last group: of the executor's thread (or who calls Step).
  LaunchScratch scratch_;
  Slot slots_[DevicePort::kNumSlots];
  std::deque<Slot*> under_way_;  // the oldest first
  std::vector<Slot*> free_;
  std::deque<Batch> backlog_;     // parts of a batch that was too large
  std::optional<Batch> pending_;  // waits for scratch memory of
  size_t pending_behind_ = 0;     // so many batches under way
  Clock::time_point last_compute_end_;
  bool broken_ = false;

  std::mutex mu_;
  std::condition_variable woken_;
  std::atomic<bool> work_{false};  // set with mu_ held
  bool stopped_ = false;           // guarded by mu_
  std::thread thread_;
};

}  // namespace attendant::server
