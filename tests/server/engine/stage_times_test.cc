#include "server/engine/stage_times.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace attendant::server {
namespace {

using std::chrono::nanoseconds;

Clock::time_point At(int64_t ns) { return Clock::time_point(nanoseconds(ns)); }

StageInterval Interval(Stage stage, int64_t begin, int64_t end) {
  return {stage, At(begin), At(end)};
}

int64_t Exposed(const JobResult& result, Stage stage) {
  return result.exposed_ns[static_cast<int>(stage)];
}
int64_t Busy(const JobResult& result, Stage stage) {
  return result.busy_ns[static_cast<int>(stage)];
}
int64_t Total(const JobResult& result) {
  return std::accumulate(std::begin(result.exposed_ns),
                         std::end(result.exposed_ns), int64_t{0});
}

TEST(StageTimesTest, OneItemGoesThroughTheStages) {
  JobResult result;
  const std::vector<StageInterval> intervals = {
      Interval(Stage::kUpload, 110, 120), Interval(Stage::kKernel, 125, 150),
      Interval(Stage::kDownload, 150, 157)};
  FillStageTimes(At(100), At(160), intervals, &result);
  EXPECT_EQ(Exposed(result, Stage::kQueue), 10 + 5 + 3);
  EXPECT_EQ(Exposed(result, Stage::kUpload), 10);
  EXPECT_EQ(Exposed(result, Stage::kKernel), 25);
  EXPECT_EQ(Exposed(result, Stage::kDownload), 7);
  EXPECT_EQ(Total(result), 60);
}

TEST(StageTimesTest, OverlappingItemsAddUpAllTheSame) {
  JobResult result;
  const std::vector<StageInterval> intervals = {
      Interval(Stage::kUpload, 0, 40),    Interval(Stage::kUpload, 30, 60),
      Interval(Stage::kKernel, 40, 80),   Interval(Stage::kKernel, 80, 100),
      Interval(Stage::kDownload, 80, 90), Interval(Stage::kDownload, 100, 110)};
  FillStageTimes(At(0), At(115), intervals, &result);
  EXPECT_EQ(Busy(result, Stage::kUpload), 60);
  EXPECT_EQ(Busy(result, Stage::kKernel), 60);
  EXPECT_EQ(Busy(result, Stage::kDownload), 20);
  EXPECT_EQ(Exposed(result, Stage::kUpload), 40);
  EXPECT_EQ(Exposed(result, Stage::kKernel), 60);
  EXPECT_EQ(Exposed(result, Stage::kDownload), 10);
  EXPECT_EQ(Exposed(result, Stage::kQueue), 5);
  EXPECT_EQ(Total(result), 115);
}

TEST(StageTimesTest, WhatLiesOutsideTheJobIsCutOff) {
  JobResult result;
  const std::vector<StageInterval> intervals = {
      Interval(Stage::kUpload, 0, 120), Interval(Stage::kKernel, 190, 300)};
  FillStageTimes(At(100), At(200), intervals, &result);
  EXPECT_EQ(Exposed(result, Stage::kUpload), 20);
  EXPECT_EQ(Exposed(result, Stage::kKernel), 10);
  EXPECT_EQ(Total(result), 100);
}

TEST(StageTimesTest, AJobThatNeverRanWasInTheQueue) {
  JobResult result;
  FillStageTimes(At(100), At(142), {}, &result);
  EXPECT_EQ(Exposed(result, Stage::kQueue), 42);
  EXPECT_EQ(Busy(result, Stage::kQueue), 42);
  EXPECT_EQ(Total(result), 42);
}

TEST(StageTimesTest, WorkBeforeTheLastByteIsBusyAndNotExposed) {
  JobResult result;
  const std::vector<StageInterval> intervals = {
      Interval(Stage::kUpload, 10, 30), Interval(Stage::kKernel, 30, 60),
      Interval(Stage::kUpload, 80, 90), Interval(Stage::kKernel, 90, 100)};
  FillStageTimes(At(0), At(85), At(110), intervals, &result);
  EXPECT_EQ(Busy(result, Stage::kUpload), 30);
  EXPECT_EQ(Busy(result, Stage::kKernel), 40);
  EXPECT_EQ(Exposed(result, Stage::kUpload), 5);
  EXPECT_EQ(Exposed(result, Stage::kKernel), 10);
  EXPECT_EQ(Exposed(result, Stage::kQueue), 10);
  EXPECT_EQ(Total(result), 25);
}

TEST(StageTimesTest, StagesSayWhereTheyBeganAndEnded) {
  JobResult result;
  const std::vector<StageInterval> intervals = {
      Interval(Stage::kUpload, 20, 30), Interval(Stage::kUpload, 10, 25),
      Interval(Stage::kKernel, 30, 60)};
  FillStageTimes(At(0), At(85), At(110), intervals, &result);
  const auto extent = [&](Stage stage) {
    return result.extents[static_cast<size_t>(stage)];
  };
  EXPECT_EQ(extent(Stage::kUpload).begin, At(10));
  EXPECT_EQ(extent(Stage::kUpload).end, At(30));
  EXPECT_EQ(extent(Stage::kKernel).end, At(60));
  EXPECT_EQ(extent(Stage::kDownload).begin, Clock::time_point());
}

}  // namespace
}  // namespace attendant::server
