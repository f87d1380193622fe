#include "server/engine/stage_times.h"

#include <algorithm>
#include <vector>

namespace attendant::server {
namespace {

struct Edge {
  Clock::time_point at;
  Stage stage;
  int change;  // of the number of items in the stage
};

// In this order a moment is given away.
constexpr Stage kExposedOrder[] = {Stage::kKernel, Stage::kDownload,
                                   Stage::kUpload};

int64_t Nanoseconds(Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

void AddSpan(int64_t span_ns, const int (&active)[kNumStages],
             JobResult* result) {
  Stage exposed = Stage::kQueue;
  for (const Stage stage : kExposedOrder) {
    if (active[static_cast<int>(stage)] == 0) continue;
    if (exposed == Stage::kQueue) exposed = stage;
    result->busy_ns[static_cast<int>(stage)] += span_ns;
  }
  result->exposed_ns[static_cast<int>(exposed)] += span_ns;
}

void AddExtent(const StageInterval& interval, JobResult::Extent* extent) {
  const bool is_first = extent->begin == Clock::time_point();
  extent->begin =
      is_first ? interval.begin : std::min(extent->begin, interval.begin);
  extent->end = std::max(extent->end, interval.end);
}

}  // namespace

const char* StageName(Stage stage) {
  constexpr const char* kNames[kNumStages] = {"receive", "queue",    "upload",
                                              "kernel",  "download", "send"};
  return kNames[static_cast<int>(stage)];
}

void FillStageTimes(Clock::time_point submitted,
                    Clock::time_point input_complete, Clock::time_point done,
                    std::span<const StageInterval> intervals,
                    JobResult* result) {
  const auto exposed_from = std::clamp(input_complete, submitted, done);
  JobResult early;  // all of it busy, nothing exposed
  FillStageTimes(submitted, exposed_from, intervals, &early);
  FillStageTimes(exposed_from, done, intervals, result);
  for (const Stage stage : kExposedOrder) {
    const int s = static_cast<int>(stage);
    result->busy_ns[s] += early.busy_ns[s];
  }
}

void FillStageTimes(Clock::time_point submitted, Clock::time_point done,
                    std::span<const StageInterval> intervals,
                    JobResult* result) {
  std::vector<Edge> edges;
  edges.reserve(2 * intervals.size());
  for (const StageInterval& interval : intervals) {
    const auto begin = std::clamp(interval.begin, submitted, done);
    const auto end = std::clamp(interval.end, begin, done);
    edges.push_back({begin, interval.stage, 1});
    edges.push_back({end, interval.stage, -1});
    AddExtent(interval, &result->extents[static_cast<size_t>(interval.stage)]);
  }
  std::sort(edges.begin(), edges.end(),
            [](const Edge& a, const Edge& b) { return a.at < b.at; });
  int active[kNumStages] = {};
  Clock::time_point at = submitted;
  for (const Edge& edge : edges) {
    AddSpan(Nanoseconds(edge.at - at), active, result);
    active[static_cast<int>(edge.stage)] += edge.change;
    at = edge.at;
  }
  AddSpan(Nanoseconds(done - at), active, result);
  const int queue = static_cast<int>(Stage::kQueue);
  result->busy_ns[queue] = result->exposed_ns[queue];
}

}  // namespace attendant::server
