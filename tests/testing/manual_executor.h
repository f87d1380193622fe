// An executor that does nothing by itself: a test pulls and finishes.
#pragma once

#include <utility>

#include "server/engine/attention_executor.h"

namespace attendant::testing {

class ManualExecutor final : public server::AttentionExecutor {
 public:
  explicit ManualExecutor(server::WorkSource* source) : source_(source) {}

  void Wake() override { ++wakes_; }
  void Stop() override {}

  int wakes() const { return wakes_; }
  server::Batch Pull() { return source_->Pull(); }

  // The batch was launched once and ended with `status`.
  void Finish(server::Batch batch, const absl::Status& status = {}) {
    batch.launches = 1;
    for (server::WorkItem& item : batch.items) {
      item.status = status;
      item.kernel = "manual";
      batch.launched_flops += item.range.flops;
    }
    source_->Finish(std::move(batch));
  }

 private:
  server::WorkSource* const source_;
  int wakes_ = 0;
};

}  // namespace attendant::testing
