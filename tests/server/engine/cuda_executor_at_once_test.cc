// Small batches that meet an idle device and are given to it whole.
#include "server/engine/cuda_executor.h"
#include "tests/server/engine/cuda_executor_fixture.h"

namespace attendant::server {
namespace {

class AtOnceTest : public CudaExecutorTest {
 protected:
  AtOnceTest() { at_once_bytes_ = int64_t{1} << 20; }

  // How many marks the device passes on the queue of kernels alone.
  int RunKernelQueue() {
    int marks = 0;
    while (port_.Run(Queue::kKernel)) {
      ++marks;
      StepAll();
    }
    return marks;
  }
};

TEST_F(AtOnceTest, ALoneBatchIsUploadedLaunchedAndDownloadedOnOneQueue) {
  Start();
  const Submitted job = Submit({});
  StepAll();
  EXPECT_EQ(port_.launches, 1);
  EXPECT_GT(port_.downloads, 0);
  EXPECT_FALSE(port_.Run(Queue::kUpload));
  EXPECT_FALSE(port_.Run(Queue::kDownload));
  EXPECT_EQ(RunKernelQueue(), 3);
  ExpectRightAnswer(job);
  EXPECT_FALSE(executor_->busy());
  EXPECT_EQ(device_pool_->used_bytes(), 0);
}

TEST_F(AtOnceTest, ABatchAboveTheBoundGoesStageByStage) {
  at_once_bytes_ = 1;
  Start();
  const Submitted job = Submit({});
  StepAll();
  EXPECT_EQ(port_.launches, 0);
  RunAll();
  ExpectRightAnswer(job);
}

TEST_F(AtOnceTest, BehindAnotherABatchGoesStageByStage) {
  scheduling_.max_batch_bytes = 1;
  Start();
  const Submitted first = Submit({}, 1), second = Submit(kCut, 2);
  StepAll();
  EXPECT_EQ(port_.launches, 1);
  EXPECT_TRUE(port_.Run(Queue::kUpload));
  RunAll();
  ExpectRightAnswer(first);
  ExpectRightAnswer(second);
}

TEST_F(AtOnceTest, StageTimesAddUp) {
  Start();
  const Submitted job = Submit({});
  StepAll();
  for (const int stage_ms : {2, 4, 8}) {
    clock_.Advance(milliseconds(stage_ms));
    port_.Run(Queue::kKernel);
    StepAll();
  }
  ExpectRightAnswer(job);
  const auto& exposed = job.ended->result.exposed_ns;
  EXPECT_EQ(exposed[static_cast<int>(Stage::kUpload)], 2'000'000);
  EXPECT_EQ(exposed[static_cast<int>(Stage::kKernel)], 4'000'000);
  EXPECT_EQ(exposed[static_cast<int>(Stage::kDownload)], 8'000'000);
  EXPECT_EQ(job.ended->result.stage, Stage::kDownload);
}

TEST_F(AtOnceTest, ACancelledJobsMemoryStaysUntilTheDeviceIsThrough) {
  Start();
  const Submitted job = Submit({});
  StepAll();
  scheduler_->Cancel(job.job);
  EXPECT_TRUE(absl::IsCancelled(EndOf(job)));
  port_.Run(Queue::kKernel);
  StepAll();
  port_.Run(Queue::kKernel);
  StepAll();
  EXPECT_GT(host_pool_->used_bytes(), 0);
  EXPECT_GT(device_pool_->used_bytes(), 0);
  RunAll();
  EXPECT_EQ(host_pool_->used_bytes(), 0);
  EXPECT_EQ(device_pool_->used_bytes(), 0);
}

TEST_F(AtOnceTest, ARefusedCallFailsItsBatchAndTheNextIsRight) {
  ExpectRefusedCallsFailTheirBatchesAlone(kPadded);
}

}  // namespace
}  // namespace attendant::server
