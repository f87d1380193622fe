// One greedy and nine modest callers, each with an identity of its own, before
// a device of a known speed.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/integration/real_server.h"
#include "tests/integration/server_process.h"
#include "tests/operation/measured_load.h"
#include "tests/operation/operation_process.h"
#include "tests/operation/policy_file.h"
#include "tests/operation/record.h"

namespace attendant::testing {
namespace {

using client::cli::LoadPlan;
using std::chrono::milliseconds;

constexpr int kModest = 9;
constexpr double kSmallSeconds = 0.002;
constexpr int64_t kSeqlen = 64;

// Nobody may have more than half of the queue.
std::vector<PolicyIdentity> Everybody() {
  std::vector<PolicyIdentity> everybody = {{"greedy", 0.5}};
  for (int i = 1; i <= kModest; ++i) {
    everybody.push_back({"modest" + std::to_string(i), 0.5});
  }
  return everybody;
}

class FairnessTest : public ::testing::Test {
 protected:
  FairnessTest()
      : policy_(Everybody(), /*open=*/false),
        server_(std::make_unique<ServerProcess>(
            std::vector<std::string>{"--host_pool_bytes=256M",
                                     "--max_queued_requests=100",
                                     policy_.flag()},
            PacedServer(LoadFlops(1, kSeqlen) / kSmallSeconds))) {}

  // What nine modest callers see, each at `rate` calls a second of `heads`
  // heads: a request takes 2 ms a head.
  MeasuredLoad RunModest(int64_t heads, double rate) {
    const v1::AttendRequest request = LoadRequest(heads, kSeqlen);
    std::vector<MeasuredLoad> loads(kModest);
    {
      std::vector<std::jthread> callers;
      for (int i = 0; i < kModest; ++i) {
        callers.emplace_back([&, i] {
          LoadPlan plan;
          plan.callers = 8;
          plan.rate = rate;
          plan.poisson = true;
          plan.seed = static_cast<uint64_t>(i + 1);
          plan.duration = milliseconds(IsRecording() ? 12'000 : 500);
          CallerOptions options = As("modest" + std::to_string(i + 1));
          loads[i] = RunMeasuredLoad(plan, options, request);
        });
      }
    }
    MeasuredLoad all;
    for (const MeasuredLoad& load : loads) {
      all.result.Merge(load.result);
      all.wrong += load.wrong;
    }
    EXPECT_GT(all.result.answered, 0);
    EXPECT_EQ(all.result.failed(), 0) << all.result.first_error;
    EXPECT_EQ(all.wrong, 0);
    return all;
  }

  // The same while so many calls of a greedy caller are always there. Its share
  // of the queue are 50: with more, it asks again as soon as it is refused.
  MeasuredLoad RunModestBesideGreedy(int64_t heads, double rate,
                                     int64_t greedy_heads, int greedy_calls) {
    MeasuredLoad greedy;
    std::jthread caller([&] {
      LoadPlan plan;
      plan.callers = greedy_calls;
      plan.duration = milliseconds(IsRecording() ? 13'000 : 800);
      greedy = RunMeasuredLoad(plan, As("greedy"),
                               LoadRequest(greedy_heads, kSeqlen));
    });
    const auto queued = [&] {
      return SampleOf(server_->Metrics(), "attendant_queued_requests");
    };
    for (int i = 0; i < 1000 && queued() < 10; ++i) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    const MeasuredLoad modest = RunModest(heads, rate);
    caller.join();
    EXPECT_GT(greedy.result.answered, 0);
    // Beyond its share of the queue it is refused, and nothing else.
    EXPECT_EQ(greedy.result.failed(), greedy.refused)
        << greedy.result.first_error;
    greedy_per_second_ = greedy.goodput();
    return modest;
  }

  void Compare(const std::string& section, const MeasuredLoad& alone,
               const MeasuredLoad& beside) const {
    const auto p99 = [](const MeasuredLoad& load) {
      return Milliseconds(load.result.latency.Quantile(0.99));
    };
    Record record("fairness", section);
    record.Set("device",
               "paced to 2 ms a head; items and batches cut as on a "
               "GPU (1.7 and 6.7 ms); real server process");
    record.Set("modest_callers", kModest);
    record.Set("modest_answered", beside.result.answered);
    record.Set("greedy_answers_per_second", greedy_per_second_);
    record.Set("modest_p50_ms_alone",
               Milliseconds(alone.result.latency.Quantile(0.5)));
    record.Set("modest_p50_ms_beside_greedy",
               Milliseconds(beside.result.latency.Quantile(0.5)));
    record.Set("modest_p99_ms_alone", p99(alone));
    record.Set("modest_p99_ms_beside_greedy", p99(beside));
    record.AtMost("p99_ratio", p99(beside) / p99(alone), 2);
  }

  CallerOptions As(const std::string& name) const {
    CallerOptions options;
    options.address = server_->grpc_address();
    options.token = name;
    options.connections = 2;
    return options;
  }

  const PolicyFile policy_;
  std::unique_ptr<ServerProcess> server_;
  double greedy_per_second_ = 0;
};

TEST_F(FairnessTest, GreedyDoesNotDisturbModest) {
  ASSERT_NE(server_->grpc_address(), "") << server_->Log();
  const int64_t small_heads = 1, large_heads = IsRecording() ? 32 : 8;
  const int greedy_calls = IsRecording() ? 48 : 16;
  constexpr double kSmallRate = 25;  // all nine: 45 % of the device
  const MeasuredLoad small = RunModest(small_heads, kSmallRate);
  for (const int64_t greedy_heads : {small_heads, large_heads}) {
    const MeasuredLoad beside = RunModestBesideGreedy(
        small_heads, kSmallRate, greedy_heads, greedy_calls);
    Compare(greedy_heads == 1 ? "modest small, greedy small"
                              : "modest small, greedy large",
            small, beside);
  }
  if (IsRecording()) {
    Compare("modest small, greedy small that ignores its refusals", small,
            RunModestBesideGreedy(small_heads, kSmallRate, small_heads, 64));
  }
  constexpr int64_t kMedium = 8;
  const MeasuredLoad medium = RunModest(kMedium, kSmallRate / kMedium);
  const MeasuredLoad beside = RunModestBesideGreedy(
      kMedium, kSmallRate / kMedium, small_heads, greedy_calls);
  Compare("modest large, greedy small", medium, beside);
}

// A stream that sends nothing: it holds a place for a body.
struct SilentStream {
  SilentStream(v1::AttentionService::StubInterface& stub,
               const std::string& token) {
    SetPatience(&context);
    context.AddMetadata("authorization", "Bearer " + token);
    stream = stub.AttendStream(&context);
  }
  ~SilentStream() {
    context.TryCancel();
    stream->Finish();
  }

  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriterInterface<v1::AttendStreamRequest,
                                                    v1::AttendStreamResponse>>
      stream;
};

TEST_F(FairnessTest, GreedyUploadsLeaveOthersTheirPlaces) {
  ASSERT_NE(server_->grpc_address(), "") << server_->Log();
  const auto stub = ConnectTo(server_->grpc_address());
  constexpr int kStreams = 200;  // of 128 places
  std::vector<std::unique_ptr<SilentStream>> streams;
  for (int i = 0; i < kStreams; ++i) {
    streams.push_back(std::make_unique<SilentStream>(*stub, "greedy"));
  }
  const auto metric = [&](const std::string& sample) {
    return static_cast<int>(SampleOf(server_->Metrics(), sample));
  };
  const auto refused = [&] {
    return metric(
        "attendant_requests_finished_total{method=\"AttendStream\","
        "code=\"RESOURCE_EXHAUSTED\"}");
  };
  // Half of the places are kept for ten identities: six each.
  constexpr int kGreedy = 128 - kModest * 6;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (refused() + metric("attendant_requests_in_flight{method="
                            "\"AttendStream\"}") <
         kStreams) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(refused(), kStreams - kGreedy);
  for (int i = 1; i <= kModest; ++i) {
    grpc::ClientContext context;
    SetPatience(&context);
    context.AddMetadata("authorization", "Bearer modest" + std::to_string(i));
    v1::AttendResponse reply;
    const grpc::Status status =
        stub->Attend(&context, LoadRequest(1, kSeqlen), &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
}

}  // namespace
}  // namespace attendant::testing
