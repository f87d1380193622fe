// A device that computes on the host, when a test says so.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <utility>

#include "kernels/base/status_macros.h"
#include "kernels/cpu/thread_pool.h"
#include "server/engine/device_port.h"

namespace attendant::testing {

// "Device" pointers are host memory. Work of a queue waits until Run.
class FakeDevicePort final : public server::DevicePort {
 public:
  explicit FakeDevicePort(kernels::cpu::ThreadPool* pool) : pool_(pool) {}

  // Runs the queue's work up to and with the next mark; false if it is empty.
  bool Run(Queue queue) {
    auto& work = work_[static_cast<int>(queue)];
    if (work.empty()) return false;
    for (bool marked = false; !marked && !work.empty();) {
      marked = work.front()();
      work.pop_front();
    }
    return true;
  }
  // Fails the next `what`: "upload", "launch", "mark", ....
  void FailNext(std::string what, absl::Status status) {
    fail_ = std::move(what);
    failure_ = std::move(status);
  }
  static absl::Status StickyError() {
    return absl::InternalError("sticky: illegal address");
  }

  // Work is done as soon as it is marked, as for a device without an end.
  bool automatic = false;
  // False: launches are counted, nothing is computed (for plans of a GPU).
  bool computes = true;
  int32_t repair_flag = 0;  // what every flag reads after a launch
  int launches = 0;
  int repairs = 0;
  int downloads = 0;
  int64_t uploaded_bytes = 0;

  absl::Status Upload(Queue queue, void* device, const void* host,
                      int64_t pitch, int64_t width, int64_t height) override {
    RETURN_IF_ERROR(Failure("upload"));
    uploaded_bytes += width * height;
    Copy(queue, device, host, pitch, width, height);
    return absl::OkStatus();
  }
  absl::Status Download(Queue queue, void* host, const void* device,
                        int64_t pitch, int64_t width, int64_t height) override {
    RETURN_IF_ERROR(Failure("download"));
    ++downloads;
    Copy(queue, host, device, pitch, width, height);
    return absl::OkStatus();
  }
  absl::Status FillZero(Queue queue, void* device, int64_t bytes) override {
    Enqueue(queue, [=] { std::memset(device, 0, static_cast<size_t>(bytes)); });
    return absl::OkStatus();
  }
  absl::Status FillFloat(Queue queue, float* device, int64_t count,
                         float value) override {
    Enqueue(queue, [=] { std::fill_n(device, count, value); });
    return absl::OkStatus();
  }
  absl::Status Launch(const kernels::AttentionPlan& plan,
                      kernels::LaunchContext context) override {
    RETURN_IF_ERROR(Failure("launch"));
    ++launches;
    if (!computes) return absl::OkStatus();
    context.thread_pool = pool_;
    Enqueue(Queue::kKernel, [&plan, context] {
      if (!plan.Launch(context).ok()) std::abort();
    });
    return absl::OkStatus();
  }
  absl::Status Repair(const kernels::AttentionPlan&,
                      kernels::LaunchContext) override {
    RETURN_IF_ERROR(Failure("repair"));
    ++repairs;
    return absl::OkStatus();
  }
  absl::Status ReadFlag(int32_t* host, const void*) override {
    Enqueue(Queue::kKernel, [host, flag = repair_flag] { *host = flag; });
    return absl::OkStatus();
  }
  absl::Status Mark(Queue queue, Queue stage, int slot) override {
    RETURN_IF_ERROR(Failure("mark"));
    bool* const reached = &reached_[static_cast<int>(stage)][slot];
    *reached = false;
    work_[static_cast<int>(queue)].push_back([reached] {
      *reached = true;
      return true;
    });
    if (automatic) Run(queue);
    return absl::OkStatus();
  }
  absl::StatusOr<bool> IsReached(Queue stage, int slot) override {
    RETURN_IF_ERROR(Failure("query"));
    return reached_[static_cast<int>(stage)][slot];
  }
  absl::Status Synchronize() override {
    while (Run(Queue::kUpload) || Run(Queue::kKernel) ||
           Run(Queue::kDownload)) {
    }
    return absl::OkStatus();
  }
  bool IsSticky(const absl::Status& status) const override {
    return status == StickyError();
  }

 private:
  absl::Status Failure(const char* what) {
    if (fail_ != what) return absl::OkStatus();
    fail_.clear();
    return failure_;
  }
  void Enqueue(Queue queue, std::function<void()> work) {
    work_[static_cast<int>(queue)].push_back([work = std::move(work)] {
      work();
      return false;
    });
  }
  void Copy(Queue queue, void* to, const void* from, int64_t pitch,
            int64_t width, int64_t height) {
    Enqueue(queue, [=] {
      for (int64_t row = 0; row < height; ++row) {
        std::memcpy(static_cast<std::byte*>(to) + row * pitch,
                    static_cast<const std::byte*>(from) + row * pitch,
                    static_cast<size_t>(width));
      }
    });
  }

  kernels::cpu::ThreadPool* const pool_;
  std::deque<std::function<bool()>> work_[kNumQueues];  // true = a mark
  bool reached_[kNumQueues][kNumSlots] = {};
  std::string fail_;
  absl::Status failure_;
};

}  // namespace attendant::testing
