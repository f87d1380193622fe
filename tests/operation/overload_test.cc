// Three times what the device can do, by the real server over a device of a
// known speed. Outcomes always; times only when a run is recorded.
#include <gtest/gtest.h>

#include "server/options/server_options.h"
#include "tests/integration/server_process.h"
#include "tests/operation/measured_load.h"
#include "tests/operation/operation_process.h"
#include "tests/operation/record.h"

namespace attendant::testing {
namespace {

using client::cli::LoadPlan;
using std::chrono::seconds;

constexpr int64_t kHeads = 1, kSeqlen = 64;
constexpr int kQueue = 12;
constexpr int kCallers = 64;

const std::vector<std::string> kFlags = {
    "--host_pool_bytes=64M", "--max_request_bytes=1M", "--max_uploads=128",
    "--max_queued_requests=" + std::to_string(kQueue)};

// In the quick form a device that is so slow that the calls refused beside it
// cost the test's own machine nothing, however slow that is.
double RequestSeconds() { return IsRecording() ? 0.002 : 0.02; }

int64_t MemoryBound() {
  server::ServerOptions options;
  options.engine.host_pool_bytes = int64_t{64} << 20;
  options.bounds.max_request_bytes = int64_t{1} << 20;
  options.max_uploads = 128;
  return options.HostMemoryBound();
}

LoadPlan OpenLoop(double rate, std::chrono::nanoseconds duration) {
  LoadPlan plan;
  plan.callers = kCallers;
  plan.rate = rate;
  plan.poisson = true;
  plan.duration = duration;
  return plan;
}

TEST(Overload, ThreeTimesCapacityIsRefusedNotSuffered) {
  const ServerProcess server(
      kFlags, PacedServer(LoadFlops(kHeads, kSeqlen) / RequestSeconds()));
  ASSERT_NE(server.grpc_address(), "") << server.start_line();
  const auto length = seconds(IsRecording() ? 60 : 2);
  const auto side_length = seconds(IsRecording() ? 15 : 1);
  const v1::AttendRequest request = LoadRequest(kHeads, kSeqlen);
  CallerOptions caller;
  caller.address = server.grpc_address();
  LoadPlan closed;
  closed.callers = 8;
  closed.duration = side_length;
  const MeasuredLoad peak = RunMeasuredLoad(closed, caller, request);
  EXPECT_EQ(peak.result.failed(), 0) << peak.result.first_error;
  const MeasuredLoad most = RunMeasuredLoad(
      OpenLoop(0.8 * peak.goodput(), side_length), caller, request);
  const MeasuredLoad over =
      RunMeasuredLoad(OpenLoop(3 / RequestSeconds(), length), caller, request);

  EXPECT_GT(over.result.answered, 0);
  EXPECT_GT(over.refused, over.result.answered);
  EXPECT_EQ(over.refused, over.result.failed()) << over.result.first_error;
  EXPECT_EQ(over.refused_with_pushback, over.refused);
  EXPECT_EQ(peak.wrong + most.wrong + over.wrong, 0);
  EXPECT_LT(server.PeakResidentBytes(), MemoryBound());
  // Then it serves as before.
  LoadPlan after;
  after.requests = 20;
  EXPECT_EQ(RunMeasuredLoad(after, caller, request).result.answered, 20);

  Record record("overload", "three times capacity, open loop");
  record.Set("device",
             "paced to 2 ms a request, so that neither the client nor "
             "the two cores bound it; real server process");
  record.Set("queue_requests", kQueue);
  record.Set("seconds", length.count());
  record.Set("peak_per_second", peak.goodput());
  record.Set("offered_per_second",
             static_cast<double>(over.all()) /
                 std::chrono::duration<double>(over.result.wall).count());
  record.Set("refused", over.refused);
  record.Set("answered", over.result.answered);
  record.AtLeast("goodput_share_of_peak", over.goodput() / peak.goodput(),
                 0.95);
  record.AtMost("refusal_p99_ms", Milliseconds(over.refusals.Quantile(0.99)),
                10);
  record.Set("refusal_p50_ms", Milliseconds(over.refusals.Quantile(0.5)));
  record.AtLeast("share_refused_with_pushback",
                 static_cast<double>(over.refused_with_pushback) /
                     static_cast<double>(over.result.failed()),
                 1);
  const double usual = Milliseconds(most.result.latency.Quantile(0.99));
  record.Set("p99_ms_at_80_percent", usual);
  record.Set("p99_ms_accepted",
             Milliseconds(over.result.latency.Quantile(0.99)));
  record.Set("p99_ms_accepted_from_real_start",
             Milliseconds(over.result.service.Quantile(0.99)));
  record.AtMost("p99_over_p99_at_80_percent",
                Milliseconds(over.result.latency.Quantile(0.99)) / usual, 3);
  record.AtMost("peak_resident_mib",
                static_cast<double>(server.PeakResidentBytes() >> 20),
                static_cast<double>(MemoryBound() >> 20));
}

}  // namespace
}  // namespace attendant::testing
