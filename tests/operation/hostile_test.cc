// Hostile requests of every kind to the real binary, beside an honest caller.
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <map>
#include <mutex>

#include "server/monitoring/metrics.h"
#include "tests/integration/load.h"
#include "tests/integration/mixed_problems.h"
#include "tests/integration/wire_problem.h"
#include "tests/operation/fault_fixture.h"
#include "tests/operation/hostile_caller.h"
#include "tests/operation/policy_file.h"
#include "tests/testing/tensor_matchers.h"

namespace attendant::testing {
namespace {

constexpr int kCallers = 8;

class HostileTest : public FaultTest {
 protected:
  // `count` hostile calls; how they ended, by kind and code.
  std::map<std::string, std::map<std::string, int64_t>> Attack(
      const std::string& address, int64_t count, unsigned seed) {
    std::atomic<int64_t> left{count};
    std::mutex mu;
    std::map<std::string, std::map<std::string, int64_t>> ended;
    std::vector<std::jthread> callers;
    for (int c = 0; c < kCallers; ++c) {
      callers.emplace_back([&, c] {
        HostileCaller caller(address, seed + static_cast<unsigned>(c));
        std::map<std::string, std::map<std::string, int64_t>> own;
        while (left-- > 0) {
          const auto result = caller.Next();
          const auto code = result.status.error_code();
          ++own[kHostilityNames[static_cast<int>(result.kind)]]
               [server::GrpcCodeName(code)];
          // What would mean that the server was surprised.
          EXPECT_NE(code, grpc::StatusCode::INTERNAL)
              << result.status.error_message();
          EXPECT_NE(code, grpc::StatusCode::DEADLINE_EXCEEDED)
              << result.status.error_message();
        }
        std::lock_guard lock(mu);
        for (const auto& [kind, codes] : own) {
          for (const auto& [code, times] : codes) ended[kind][code] += times;
        }
      });
    }
    callers.clear();
    return ended;
  }

  // Answers of every shape and option against the oracle.
  int64_t WrongAnswers(const std::string& address, int64_t* answered) {
    std::vector<v1::AttendRequest> requests;
    std::vector<Expectation> expectations;
    const std::vector<ProblemOptions> problems = MixedProblems();
    for (const ProblemOptions& one : problems) {
      const HostProblem problem(one);
      expectations.emplace_back(problem);
      requests.push_back(ToWire(problem));
    }
    std::atomic<int64_t> wrong{0};
    LoadOptions load;
    load.address = address;
    load.threads = 4;
    load.requests = 200;
    load.check = [&](size_t which, const v1::AttendResponse& reply) {
      HostProblem problem(problems[which]);
      wrong +=
          !FromWire(reply, &problem) || !Matches(problem, expectations[which]);
    };
    Tally tally;
    RunLoad(load, requests, &tally);
    *answered = tally.ended_with(grpc::OK);
    return wrong;
  }
};

TEST_F(HostileTest, ServerLivesOnAndAnswersRight) {
  const int64_t count = IsRecording() ? 100'000 : 1'500;
  // The hostile ones are anonymous: what they hold, the honest one is not due.
  const PolicyFile policy({{"honest"}}, /*open=*/true);
  ServerProcess server(
      Flags({"--regions=buffers,posix", "--region_bytes=16M", policy.flag()}));
  ASSERT_NE(server.grpc_address(), "") << server.Log();
  auto options = TrafficTo(server.grpc_address());
  options.rate = 50;
  options.callers = 4;
  options.client.token = "honest";
  options.client.allow_token_without_tls = true;
  SteadyTraffic honest(options);
  honest.WaitForCalls(10);
  const int64_t descriptors = server.OpenDescriptors();
  Attack(server.grpc_address(), count / 10, 1000);
  const int64_t early = server.ResidentBytes();
  const auto begin = std::chrono::steady_clock::now();
  auto ended = Attack(server.grpc_address(), count - count / 10, 1);
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - begin;
  const int64_t late = server.ResidentBytes();
  EXPECT_TRUE(
      ComesTrue([&] { return server.OpenDescriptors() <= descriptors + 2; }));
  int64_t answered = 0;
  const int64_t wrong = WrongAnswers(server.grpc_address(), &answered);
  EXPECT_EQ(answered, 200);
  EXPECT_EQ(wrong, 0);
  Record record("hostile", "hostile requests to a live server");
  record.Set("requests", count);
  record.Set("requests_per_second",
             static_cast<double>(count - count / 10) / took.count());
  record.Set("ended", ended);
  record.Set("resident_mib_after_a_tenth", early >> 20);
  record.Set("resident_mib_at_the_end", late >> 20);
  record.AtMost("growth_mib", static_cast<double>((late - early) >> 20), 16);
  record.AtMost("wrong_answers_afterwards", static_cast<double>(wrong), 0);
  Untouched("hostile", "each is refused with a reason; the server lives on",
            &honest, &record);
  EXPECT_TRUE(ComesTrue([&] {
    return SampleOf(server.Metrics(), "attendant_host_pool_used_bytes") == 0;
  }));
  record.Set("others_per_second", 50);
  record.Set("pool_bytes_left",
             SampleOf(server.Metrics(), "attendant_host_pool_used_bytes"));
  server.Signal(SIGTERM);
  const int code = server.Wait();
  EXPECT_EQ(code, 0);
  record.Set("exit_code_of_a_drain_afterwards", code);
}

}  // namespace
}  // namespace attendant::testing
