// One greedy and nine modest callers, each with an identity of its own, before
// a device of a known speed.
#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/server_process.h"
#include "tests/operation/measured_load.h"
#include "tests/operation/operation_process.h"
#include "tests/operation/record.h"

namespace attendant::testing {
namespace {

using client::cli::LoadPlan;
using std::chrono::milliseconds;

constexpr int kModest = 9;
constexpr double kSmallSeconds = 0.002;
constexpr int64_t kSeqlen = 64;

std::string HexSha256(const std::string& text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_Digest(text.data(), text.size(), digest, &size, EVP_sha256(), nullptr);
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += {kDigits[digest[i] >> 4], kDigits[digest[i] & 15]};
  }
  return hex;
}

// Equal weights; nobody may have more than half of the queue.
void WritePolicy(const std::filesystem::path& path) {
  std::ofstream file(path);
  file << "{\"identities\": [";
  for (int i = 0; i <= kModest; ++i) {
    const std::string name = i == 0 ? "greedy" : "modest" + std::to_string(i);
    file << (i == 0 ? "" : ",") << "{\"name\": \"" << name
         << "\", \"token_sha256\": \"" << HexSha256(name)
         << "\", \"methods\": [\"*\"], \"queue_share\": 0.5}";
  }
  file << "]}";
}

class FairnessTest : public ::testing::Test {
 protected:
  FairnessTest()
      : policy_(std::filesystem::temp_directory_path() /
                ("attendant-fairness-" + std::to_string(::getpid()))) {
    WritePolicy(policy_);
    server_ = std::make_unique<ServerProcess>(
        std::vector<std::string>{
            "--host_pool_bytes=256M", "--max_queued_requests=100",
            "--max_uploads=1000", "--policy=" + policy_.string()},
        PacedServer(LoadFlops(1, kSeqlen) / kSmallSeconds));
  }
  ~FairnessTest() override { std::filesystem::remove(policy_); }

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

  const std::filesystem::path policy_;
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

}  // namespace
}  // namespace attendant::testing
