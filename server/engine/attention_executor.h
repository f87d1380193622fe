// What turns work items into results on one device, and where it gets them.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "server/engine/scheduled_job.h"
#include "server/engine/work_item.h"

namespace attendant::server {

// Work items that share one upload, launch and download.
struct Batch {
  std::vector<WorkItem> items;
  // As pulled.
  int64_t requests = 0;
  int64_t tokens = 0;
  int64_t bytes = 0;  // as ItemRange
  double flops = 0;
  Clock::time_point pulled;

  // Filled by the executor.
  std::vector<StageInterval> intervals;  // of all its items alike
  int64_t launches = 0;
  double launched_flops = 0;
  int64_t uploaded_bytes = 0, downloaded_bytes = 0;
  int64_t repairs = 0;
  int64_t workspace_bytes = 0;
};

// Where executors pull from: the scheduler. Thread-safe.
class WorkSource {
 public:
  virtual ~WorkSource() = default;
  // What should be computed next; no items if there is nothing to do now.
  virtual Batch Pull() = 0;
  // False if the item's job ended meanwhile: the item needs no more work. Also
  // tells the source that the item reached `stage`.
  virtual bool Reached(const WorkItem& item, Stage stage) = 0;
  // The executor touches no memory of these items any more. Every item that was
  // pulled comes back exactly once, if need be in a smaller batch.
  virtual void Finish(Batch batch) = 0;
  // Seconds that these items are expected to take; 0 if unknown.
  virtual double EstimateSeconds(const Batch& batch) = 0;
  // The device can't compute any more: every job ends with UNAVAILABLE.
  virtual void ReportUnhealthy(const absl::Status& why) = 0;
};

class AttentionExecutor {
 public:
  virtual ~AttentionExecutor() = default;
  // Work may be there. Called with no lock held, from any thread.
  virtual void Wake() = 0;
  // Pulls no more, finishes what it has and returns. Called once.
  virtual void Stop() = 0;
};

}  // namespace attendant::server
