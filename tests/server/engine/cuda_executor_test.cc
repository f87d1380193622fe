// Stages, order and cancellation; failures and scratch memory are
// cuda_executor_faults_test.cc's.
#include "server/engine/cuda_executor.h"

#include "tests/server/engine/cuda_executor_fixture.h"

namespace attendant::server {
namespace {

TEST_F(CudaExecutorTest, AnswersAreThoseOfTheWholeRequestBitByBit) {
  Start();
  std::vector<Submitted> jobs;
  uint64_t seed = 1;
  for (const RequestOptions& base : {kCut, kPadded, kPacked}) {
    for (const bool heads_first : {false, true}) {
      RequestOptions options = base;
      options.heads_first = heads_first && !base.packed;
      jobs.push_back(Submit(options, seed++));
      options.dtype = kernels::DataType::kBFloat16;
      options.causal = true;
      jobs.push_back(Submit(options, seed++));
    }
  }
  RunAll();
  for (const Submitted& job : jobs) ExpectRightAnswer(job);
  EXPECT_GT(port_.launches, 1);
  const EngineSnapshot snapshot = scheduler_->Snapshot();
  EXPECT_EQ(snapshot.launches, port_.launches);
  EXPECT_EQ(snapshot.uploaded_bytes, port_.uploaded_bytes);
  EXPECT_EQ(snapshot.running_requests, 0);
  EXPECT_EQ(device_pool_->used_bytes(), 0);
}

TEST_F(CudaExecutorTest, ARequestWithNothingToComputeIsAnsweredWithoutLaunch) {
  Start();
  const Submitted none = Submit({.batch = 0});
  const Submitted no_rows = Submit({.seqlen_q = 0});
  RunAll();
  EXPECT_TRUE(EndOf(none).ok());
  EXPECT_TRUE(EndOf(no_rows).ok());
  EXPECT_EQ(none.ended->result.kernel, "cpu");
  EXPECT_EQ(port_.launches, 0);
}

TEST_F(CudaExecutorTest, ThreeBatchesAreUnderWay) {
  scheduling_.max_batch_bytes = 1;
  Start();
  std::vector<Submitted> jobs;
  for (int i = 0; i < 4; ++i) jobs.push_back(Submit({}, i));
  StepAll();
  EXPECT_EQ(scheduler_->Snapshot().running_requests, 3);
  // While the first computes, the second is uploaded; it is not launched.
  port_.Run(Queue::kUpload);
  port_.Run(Queue::kUpload);
  StepAll();
  EXPECT_EQ(port_.launches, 1);
  port_.Run(Queue::kKernel);
  StepAll();
  EXPECT_EQ(port_.launches, 2);
  EXPECT_EQ(scheduler_->Snapshot().running_requests, 3);
  port_.Run(Queue::kDownload);
  StepAll();
  EXPECT_EQ(scheduler_->Snapshot().queued_requests, 0);
  RunAll();
  for (const Submitted& job : jobs) ExpectRightAnswer(job);
}

TEST_F(CudaExecutorTest, ShortLaunchesFollowEachOtherWithoutAGap) {
  scheduling_.max_batch_bytes = 1;
  scheduling_.assumed_flops_per_second = 1e12;
  Start();
  std::vector<Submitted> jobs;
  for (int i = 0; i < 3; ++i) jobs.push_back(Submit({}, i));
  StepAll();
  while (port_.Run(Queue::kUpload)) StepAll();
  EXPECT_EQ(port_.launches, 3);
  RunAll();
  for (const Submitted& job : jobs) ExpectRightAnswer(job);
}

TEST_F(CudaExecutorTest, TheNextLaunchIsGivenShortlyBeforeTheEnd) {
  scheduling_.max_batch_bytes = 1;
  scheduling_.assumed_flops_per_second = 4096 / 0.010;  // 10 ms each
  Start();
  const Submitted first = Submit({}, 1), second = Submit({}, 2);
  StepAll();
  while (port_.Run(Queue::kUpload)) StepAll();
  clock_.Advance(milliseconds(9));
  StepAll();
  EXPECT_EQ(port_.launches, 1);
  clock_.Advance(std::chrono::microseconds(800));
  StepAll();
  EXPECT_EQ(port_.launches, 2);
  RunAll();
  ExpectRightAnswer(first);
  ExpectRightAnswer(second);
}

TEST_F(CudaExecutorTest, StageTimesAddUp) {
  Start();
  const Submitted job = Submit({});
  clock_.Advance(milliseconds(1));
  StepAll();
  clock_.Advance(milliseconds(2));
  port_.Run(Queue::kUpload);
  StepAll();
  clock_.Advance(milliseconds(4));
  port_.Run(Queue::kKernel);
  StepAll();
  clock_.Advance(milliseconds(8));
  port_.Run(Queue::kDownload);
  StepAll();
  ExpectRightAnswer(job);
  const auto& exposed = job.ended->result.exposed_ns;
  EXPECT_EQ(exposed[static_cast<int>(Stage::kQueue)], 1'000'000);
  EXPECT_EQ(exposed[static_cast<int>(Stage::kUpload)], 2'000'000);
  EXPECT_EQ(exposed[static_cast<int>(Stage::kKernel)], 4'000'000);
  EXPECT_EQ(exposed[static_cast<int>(Stage::kDownload)], 8'000'000);
}

TEST_F(CudaExecutorTest, FiftyExpireBehindABusyDeviceWithoutALaunch) {
  Start();
  const Submitted blocker = Submit({});
  StepAll();
  port_.Run(Queue::kUpload);
  StepAll();
  ASSERT_EQ(port_.launches, 1);
  std::vector<Submitted> jobs;
  for (int i = 0; i < 50; ++i) jobs.push_back(Submit({}, i, milliseconds(50)));
  StepAll();
  while (port_.Run(Queue::kUpload)) StepAll();
  clock_.Advance(milliseconds(50));
  EXPECT_EQ(scheduler_->RunDue(), 50);
  RunAll();
  EXPECT_EQ(port_.launches, 1);
  for (const Submitted& job : jobs) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(EndOf(job)));
  }
  ExpectRightAnswer(blocker);
  EXPECT_EQ(device_pool_->used_bytes(), 0);
}

TEST_F(CudaExecutorTest, OthersOfABatchGoOnWhenOneIsCancelledBeforeLaunch) {
  Start();
  const Submitted kept = Submit({}, 1), cancelled = Submit({}, 2);
  StepAll();
  scheduler_->Cancel(cancelled.job);
  EXPECT_TRUE(absl::IsCancelled(EndOf(cancelled)));
  RunAll();
  ExpectRightAnswer(kept);
  EXPECT_EQ(kept.ended->result.batch_requests, 2);
}

TEST_F(CudaExecutorTest, MemoryOfACancelledUploadComesBackAfterTheUpload) {
  Start();
  const Submitted job = Submit({});
  StepAll();
  scheduler_->Cancel(job.job);
  EXPECT_TRUE(absl::IsCancelled(EndOf(job)));
  EXPECT_GT(host_pool_->used_bytes(), 0);
  port_.Run(Queue::kUpload);
  StepAll();
  EXPECT_EQ(host_pool_->used_bytes(), 0);
  EXPECT_EQ(device_pool_->used_bytes(), 0);
  EXPECT_EQ(port_.launches, 0);
}

TEST_F(CudaExecutorTest, WhatEndedDuringTheKernelIsNotDownloaded) {
  Start();
  const Submitted job = Submit({});
  StepAll();
  port_.Run(Queue::kUpload);
  StepAll();
  scheduler_->Cancel(job.job);
  port_.Run(Queue::kKernel);
  StepAll();
  EXPECT_FALSE(port_.Run(Queue::kDownload));
  EXPECT_EQ(host_pool_->used_bytes(), 0);
  EXPECT_FALSE(executor_->busy());
}

}  // namespace
}  // namespace attendant::server
