#include "server/engine/self_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kernels/reference/oracle.h"
#include "server/engine/host_memory_pool.h"
#include "server/log/log.h"
#include "tests/server/request_builder.h"

namespace attendant::testing {
namespace {

using server::AttentionJob;
using server::JobResult;
using server::SelfCheck;
using ::testing::HasSubstr;

constexpr int64_t kPoolBytes = 1 << 20;

class SelfCheckTest : public ::testing::Test {
 protected:
  SelfCheckTest() {
    server::SetLogSink([this](const std::string& line) {
      std::lock_guard lock(mu_);
      log_ += line;
    });
  }
  ~SelfCheckTest() override { server::SetLogSink(nullptr); }

  std::unique_ptr<SelfCheck> Make(double share) {
    return std::make_unique<SelfCheck>(
        SelfCheck::Options{.share = share,
                           .max_bytes = kPoolBytes,
                           .idle = [this] { return idle_.load(); },
                           .run =
                               [this](std::function<void()> copy) {
                                 copies_.emplace_back(std::move(copy));
                               },
                           .patience = patience_});
  }

  // As the engine has it at Submit.
  std::shared_ptr<AttentionJob> MakeJob(const RequestOptions& options = {}) {
    auto job = std::make_shared<AttentionJob>();
    job->request = MakeRequest(options);
    job->request->request_id = "r1";
    job->input = *pool_->Allocate(job->request->input_bytes);
    job->output = std::make_shared<server::HostBlock>(
        *pool_->Allocate(job->request->output_block_bytes()));
    job->done = [](const JobResult&) {};
    FillInput(*job->request, 1, job->input.data());
    kernels::reference::Plain(
        Placed(*job->request, job->input.data(), job->output->data()));
    return job;
  }

  // As the engine ends it.
  static void End(std::shared_ptr<AttentionJob> job, absl::Status status = {}) {
    JobResult result;
    result.status = std::move(status);
    result.kernel = "cpu";
    job->input_keeper.reset();
    const auto done = std::move(job->done);
    done(std::move(result));
  }

  static SelfCheck::Counts WaitFor(const SelfCheck& check, int64_t count) {
    SelfCheck::Counts counts;
    do {
      std::this_thread::yield();
      counts = check.counts();
    } while (counts.right + counts.wrong + counts.dropped < count);
    return counts;
  }

  // What was kept is copied, and the pool is empty.
  void ExpectNothingHeld() {
    copies_.clear();
    EXPECT_EQ(pool_->used_bytes(), 0);
  }

  std::unique_ptr<server::HostMemoryPool> pool_ =
      *server::CreatePlainHostPool(kPoolBytes);
  std::atomic<bool> idle_{true};
  std::chrono::milliseconds patience_{60'000};
  std::mutex mu_;
  std::string log_;  // guarded by mu_
  std::vector<std::jthread> copies_;
};

TEST_F(SelfCheckTest, RightAnswersAreCountedAndLetGo) {
  const auto check = Make(1);
  int64_t asked = 0;
  for (const auto dtype :
       {kernels::DataType::kFloat32, kernels::DataType::kBFloat16}) {
    for (const bool packed : {false, true}) {
      RequestOptions options;
      options.batch = 2;
      options.num_q_heads = 4;
      options.num_kv_heads = 2;
      options.seqlen_q = 30;
      options.seqlen_kv = 40;
      options.dtype = dtype;
      options.packed = packed;
      if (packed) options.lens_q = options.lens_kv = {9, 20};
      auto job = MakeJob(options);
      check->Watch(job);
      End(std::move(job));
      WaitFor(*check, ++asked);
    }
  }
  EXPECT_EQ(check->counts().right, asked);
  ExpectNothingHeld();
}

TEST_F(SelfCheckTest, AWrongAnswerIsCountedAndLogged) {
  const auto check = Make(1);
  auto job = MakeJob();
  kernels::StoreFromFloat(job->output->data(), kernels::DataType::kFloat32, 3,
                          9.0f);
  check->Watch(job);
  End(std::move(job));
  EXPECT_EQ(WaitFor(*check, 1).wrong, 1);
  std::lock_guard lock(mu_);
  EXPECT_THAT(log_, HasSubstr("\"request_id\":\"r1\""));
  EXPECT_THAT(log_, HasSubstr("O of batch 0 head 0 row 0 is off by"));
}

TEST_F(SelfCheckTest, AnyHeadOfAnySequenceMayBeTheOne) {
  const auto check = Make(1);
  for (int i = 1; i <= 20; ++i) {
    // The second sequence's answer is wrong.
    RequestOptions options;
    options.batch = 2;
    auto job = MakeJob(options);
    const int64_t half = job->request->output_bytes / 2;
    std::memset(job->output->data() + half, 0x7f, static_cast<size_t>(half));
    check->Watch(job);
    End(std::move(job));
    WaitFor(*check, i);
  }
  EXPECT_GT(check->counts().right, 0);
  EXPECT_GT(check->counts().wrong, 0);
}

TEST_F(SelfCheckTest, TheShareIsKept) {
  const auto check = Make(0.25);
  for (int i = 0; i < 8; ++i) {
    auto job = MakeJob();
    check->Watch(job);
    EXPECT_EQ(job->input_keeper != nullptr, i % 4 == 3) << i;
    End(std::move(job));
    WaitFor(*check, (i + 1) / 4);
  }
  EXPECT_EQ(check->counts().right, 2);
}

TEST_F(SelfCheckTest, NothingIsComputedBesideLiveWork) {
  idle_ = false;
  patience_ = std::chrono::milliseconds(0);
  const auto check = Make(1);
  auto job = MakeJob();
  check->Watch(job);
  End(std::move(job));
  EXPECT_EQ(WaitFor(*check, 1).dropped, 1);
  ExpectNothingHeld();
}

TEST_F(SelfCheckTest, OneIsKeptAtATimeAndHoldsNothingOfThePool) {
  idle_ = false;
  const auto check = Make(1);
  auto first = MakeJob();
  auto second = MakeJob();
  check->Watch(first);
  check->Watch(second);
  EXPECT_EQ(second->input_keeper, nullptr);
  End(std::move(first));
  second.reset();
  ExpectNothingHeld();
  EXPECT_EQ(check->counts().dropped, 1);
  idle_ = true;
  EXPECT_EQ(WaitFor(*check, 2).right, 1);
}

TEST_F(SelfCheckTest, WhatIsTooLargeOrFailsIsNotKept) {
  const auto check = Make(1);
  auto large = MakeJob();
  large->request->input_bytes = kPoolBytes + 1;
  check->Watch(large);
  EXPECT_EQ(large->input_keeper, nullptr);
  large.reset();
  auto failed = MakeJob();
  check->Watch(failed);
  End(std::move(failed), absl::CancelledError("gone"));
  EXPECT_EQ(check->counts().dropped, 2);
  ExpectNothingHeld();
}

TEST_F(SelfCheckTest, StopDropsWhatIsKeptAndTakesNoMore) {
  idle_ = false;
  const auto check = Make(1);
  auto job = MakeJob();
  check->Watch(job);
  End(std::move(job));
  copies_.clear();
  check->Stop();
  EXPECT_EQ(check->counts().dropped, 1);
  auto late = MakeJob();
  check->Watch(late);
  End(std::move(late));
  EXPECT_TRUE(copies_.empty());
  ExpectNothingHeld();
}

}  // namespace
}  // namespace attendant::testing
