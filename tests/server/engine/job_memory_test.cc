#include "server/engine/job_memory.h"

#include <atomic>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "tests/server/engine/batch_scheduler_fixture.h"

namespace attendant::server {
namespace {

// Its blocks are spent slowly, as scrubbed ones are: it looks whether the
// scheduler could do something else meanwhile.
class WatchedPool final : public HostMemoryPool {
 public:
  WatchedPool() : memory_(kPoolBytes) {}
  ~WatchedPool() override {
    for (std::thread& thread : threads_) thread.join();
  }
  absl::StatusOr<HostBlock> Allocate(int64_t bytes) override {
    if (bytes > kPoolBytes - used_) return absl::ResourceExhaustedError("full");
    used_ += bytes;
    return HostBlock(this, memory_.data(), bytes);
  }
  int64_t capacity_bytes() const override { return kPoolBytes; }
  int64_t used_bytes() const override { return used_; }

  BatchScheduler* scheduler = nullptr;
  int released = 0, released_under_lock = 0;

 private:
  void Release(std::byte*, int64_t bytes) override {
    used_ -= bytes;
    released += 1;
    if (scheduler == nullptr) return;
    std::packaged_task<void()> look([this] { scheduler->Snapshot(); });
    std::future<void> looked = look.get_future();
    threads_.emplace_back(std::move(look));
    if (looked.wait_for(seconds(2)) != std::future_status::ready) {
      released_under_lock += 1;
    }
  }

  std::vector<std::byte> memory_;
  std::atomic<int64_t> used_{0};
  std::vector<std::thread> threads_;
};

TEST_F(BatchSchedulerTest, MemoryIsGivenBackWithoutTheLock) {
  WatchedPool pool;
  options_.pools.host = &pool;
  Start();
  pool.scheduler = scheduler_.get();
  const Submitted done = Submit({});
  executor_->Finish(executor_->Pull());
  EXPECT_EQ(EndOf(done), absl::StatusCode::kOk);
  EXPECT_EQ(pool.released, 1);
  const Submitted cancelled = Submit({});
  scheduler_->Cancel(cancelled.job);
  EXPECT_EQ(EndOf(cancelled), absl::StatusCode::kCancelled);
  EXPECT_EQ(pool.released, 3);
  const Submitted late = Submit({}, milliseconds(20));
  Batch batch = executor_->Pull();
  clock_.Advance(milliseconds(20));
  EXPECT_EQ(EndOf(late), absl::StatusCode::kDeadlineExceeded);
  executor_->Finish(std::move(batch));
  EXPECT_EQ(pool.released, 5);
  // There is room for its input, but not for its output, too.
  const auto held = pool.Allocate(kPoolBytes - (int64_t{900} << 10));
  EXPECT_TRUE(absl::IsResourceExhausted(Admit(kMebibyte).status()));
  EXPECT_EQ(pool.released, 6);
  EXPECT_EQ(pool.released_under_lock, 0);
  pool.scheduler = nullptr;
}

}  // namespace
}  // namespace attendant::server
