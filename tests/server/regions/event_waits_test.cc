#include "server/regions/event_waits.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <map>

namespace attendant::server {
namespace {

// Events are names; each is reached when the test says so.
class FakeEvents final : public RegionDevice {
 public:
  void Reach(void* event) {
    std::lock_guard lock(mu_);
    reached_[event] = true;
  }
  int marks() const { return marks_; }
  absl::Status error;

  absl::StatusOr<std::unique_ptr<DeviceMark>> MarkAfter(
      const std::vector<void*>& events) override {
    if (!error.ok()) return error;
    if (AllReached(events)) return nullptr;
    return std::make_unique<Mark>(this, events);
  }
  absl::StatusOr<std::shared_ptr<void>> Register(std::byte*, int64_t,
                                                 bool) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(int64_t) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<std::unique_ptr<DeviceMemory>> OpenIpc(
      const std::string&, int64_t, int64_t, const std::string&) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<std::unique_ptr<DeviceMemory>> ImportVmm(
      int, int64_t, const std::string&) override {
    return absl::UnimplementedError("");
  }
  absl::Status CopyIn(std::byte*, const std::byte*, int64_t) override {
    return absl::OkStatus();
  }
  absl::Status CopyOut(std::byte*, const std::byte*, int64_t) override {
    return absl::OkStatus();
  }

 private:
  class Mark final : public DeviceMark {
   public:
    Mark(FakeEvents* device, std::vector<void*> events)
        : device_(device), events_(std::move(events)) {
      ++device_->marks_;
    }
    ~Mark() override { --device_->marks_; }
    absl::StatusOr<bool> reached() override {
      return device_->AllReached(events_);
    }

   private:
    FakeEvents* const device_;
    const std::vector<void*> events_;
  };

  bool AllReached(const std::vector<void*>& events) {
    std::lock_guard lock(mu_);
    for (void* event : events) {
      if (!reached_[event]) return false;
    }
    return true;
  }

  std::mutex mu_;
  std::map<void*, bool> reached_;
  std::atomic<int> marks_{0};
};

class EventWaitsTest : public ::testing::Test {
 protected:
  std::future<absl::Status> After(const std::vector<void*>& events) {
    auto promise = std::make_shared<std::promise<absl::Status>>();
    waits_->After(
        events, [this] { return given_up_.load(); },
        [promise](absl::Status status) {
          promise->set_value(std::move(status));
        });
    return promise->get_future();
  }
  static bool IsReady(const std::future<absl::Status>& future) {
    return future.wait_for(std::chrono::seconds(0)) ==
           std::future_status::ready;
  }

  int first_ = 0, second_ = 0;  // their addresses are events
  FakeEvents device_;
  std::atomic<bool> given_up_{false};
  std::unique_ptr<EventWaits> waits_ = std::make_unique<EventWaits>(&device_);
};

TEST_F(EventWaitsTest, WhatIsThereIsToldAtOnce) {
  device_.Reach(&first_);
  EXPECT_TRUE(IsReady(After({})));
  auto told = After({&first_});
  ASSERT_TRUE(IsReady(told));
  EXPECT_TRUE(told.get().ok());
}

TEST_F(EventWaitsTest, ALateProducerHoldsUpItsOwnCallAlone) {
  auto late = After({&first_});
  auto both = After({&first_, &second_});
  auto other = After({&second_});
  device_.Reach(&second_);
  EXPECT_TRUE(other.get().ok());
  EXPECT_FALSE(IsReady(late) || IsReady(both));
  device_.Reach(&first_);
  EXPECT_TRUE(late.get().ok());
  EXPECT_TRUE(both.get().ok());
}

TEST_F(EventWaitsTest, WhoGivesUpIsToldAndLeavesNothing) {
  auto never = After({&first_});
  EXPECT_EQ(device_.marks(), 1);
  given_up_ = true;
  EXPECT_EQ(never.get().code(), absl::StatusCode::kCancelled);
  waits_.reset();
  EXPECT_EQ(device_.marks(), 0);
}

TEST_F(EventWaitsTest, TheEndCancelsWhoStillWaits) {
  auto never = After({&first_});
  waits_.reset();
  EXPECT_EQ(never.get().code(), absl::StatusCode::kCancelled);
}

TEST_F(EventWaitsTest, TheDevicesErrorIsTheCalls) {
  device_.error = absl::InvalidArgumentError("no event");
  EXPECT_EQ(After({&first_}).get(), device_.error);
}

}  // namespace
}  // namespace attendant::server
