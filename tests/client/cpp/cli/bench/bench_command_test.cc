#include "client/cpp/cli/bench/bench_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "client/cpp/cli/commands.h"
#include "tests/client/cpp/fake_server.h"

namespace attendant::client::cli {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  int code;
  std::string out, err;
};
Outcome Bench(const FakeServer& server, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"bench", "--server=" + server.target()});
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int code = RunCommandLine(arguments);
  return {code, testing::internal::GetCapturedStdout(),
          testing::internal::GetCapturedStderr()};
}

TEST(BenchCommand, SweepsEveryCombination) {
  FakeServer server(EchoQ);
  const Outcome run = Bench(
      server, {"--shapes=s4h1d8,s8h2d4", "--concurrency=1,3", "--requests=20",
               "--connections=1,2", "--json=-", "--door=unary", "--causal"});
  ASSERT_EQ(run.code, kOk) << run.err;
  const auto json = nlohmann::json::parse(run.out);
  ASSERT_EQ(json["rows"].size(), 8);
  EXPECT_EQ(json["server"]["version"], "1.2.3");
  EXPECT_THAT(json["command"].get<std::string>(), HasSubstr("--causal"));
  const auto& row = json["rows"][7];
  EXPECT_EQ(row["door"], "unary");
  EXPECT_EQ(row["call"], "prepared");
  EXPECT_EQ(row["layout"], "BSHD");
  EXPECT_EQ(row["seqlen"], 8);
  EXPECT_EQ(row["num_heads"], 2);
  EXPECT_EQ(row["head_dim"], 4);
  EXPECT_EQ(row["connections"], 2);
  EXPECT_EQ(row["concurrency"], 3);
  EXPECT_EQ(row["answered"], 20);
  EXPECT_EQ(row["failed"], 0);
  EXPECT_EQ(row["bytes_in"], 20 * 3 * 8 * 2 * 4 * 2);
  EXPECT_EQ(row["bytes_out"], 20 * 8 * 2 * 4 * 2);
  EXPECT_GT(row["gbps"], 0);
  EXPECT_GT(row["p50_ms"], 0);
  EXPECT_GE(row["p99_ms"], row["p50_ms"]);
  EXPECT_EQ(row["kernel"], "fake");
  EXPECT_GT(row["stages"]["kernel"]["p50_ms"], 0);
  int64_t in_histogram = 0;
  for (const auto& bucket : row["histogram_ms"]) {
    in_histogram += bucket[1].get<int64_t>();
  }
  EXPECT_EQ(in_histogram, 20);
  // Two warm-up calls for each caller.
  EXPECT_EQ(server.calls(), 8 * 20 + 4 * (2 * 1 + 2 * 3));
}

TEST(BenchCommand, MixDrawsAShapeForEveryCall) {
  std::atomic<int> small = 0, large = 0;
  FakeServer server([&](grpc::ServerContext* context,
                        const v1::AttendRequest& request,
                        v1::AttendResponse* response) {
    ++(request.q().shape(1) == 4 ? small : large);
    return EchoQ(context, request, response);
  });
  const Outcome run =
      Bench(server, {"--shapes=s4h1d8,s8h2d4", "--mix", "--requests=60",
                     "--concurrency=2", "--json=-", "--lse"});
  ASSERT_EQ(run.code, kOk) << run.err;
  const auto json = nlohmann::json::parse(run.out);
  ASSERT_EQ(json["rows"].size(), 1);
  EXPECT_EQ(json["rows"][0]["shape"], "mix of 2");
  EXPECT_FALSE(json["rows"][0].contains("seqlen"));
  EXPECT_GT(small, 10);
  EXPECT_GT(large, 10);
}

TEST(BenchCommand, EveryKindOfCallIsCountedAndVerifiedAlike) {
  FakeServer server(EchoQ);
  for (const std::string call : {"prepared", "out", "new"}) {
    const Outcome run =
        Bench(server, {"--shapes=s4h1d8,s8h2d4", "--mix", "--requests=20",
                       "--concurrency=2", "--json=-", "--lse", "--verify",
                       "--call=" + call});
    ASSERT_EQ(run.code, kOk) << run.err;
    const auto row = nlohmann::json::parse(run.out)["rows"][0];
    EXPECT_EQ(row["call"], call);
    EXPECT_EQ(row["answered"], 20);
    EXPECT_GE(row["bytes_out"], 20 * (4 * 8 * 2 + 4 * 4)) << call;
  }
}

TEST(BenchCommand, AnUnknownKindOfCallIsToldTheChoices) {
  FakeServer server(EchoQ);
  const Outcome run = Bench(server, {"--call=often"});
  EXPECT_EQ(run.code, kUsage);
  EXPECT_THAT(run.err, HasSubstr("often"));
  EXPECT_THAT(run.err, HasSubstr("prepared, out, new"));
}

TEST(BenchCommand, AStallIsSeenByCallsThatHadToWait) {
  std::atomic<int> calls = 0;
  FakeServer server([&](grpc::ServerContext* context,
                        const v1::AttendRequest& request,
                        v1::AttendResponse* response) {
    if (++calls == 30) std::this_thread::sleep_for(std::chrono::seconds(1));
    return EchoQ(context, request, response);
  });
  const Outcome run =
      Bench(server, {"--shapes=s1h1d8", "--rate=100", "--requests=200",
                     "--concurrency=1", "--warmup=0", "--json=-"});
  ASSERT_EQ(run.code, kOk) << run.err;
  const auto row = nlohmann::json::parse(run.out)["rows"][0];
  EXPECT_EQ(row["loop"], "open");
  EXPECT_GE(row["p99_ms"], 900);
  EXPECT_GE(row["p90_ms"], 500);
  EXPECT_LT(row["service"]["p99_ms"], 900);
}

TEST(BenchCommand, CountsErrorsAndSaysSoByItsExitCode) {
  std::atomic<int> calls = 0;
  FakeServer server([&](grpc::ServerContext* context,
                        const v1::AttendRequest& request,
                        v1::AttendResponse* response) {
    if (++calls % 4 == 0) {
      return grpc::Status(grpc::RESOURCE_EXHAUSTED, "full");
    }
    return EchoQ(context, request, response);
  });
  const Outcome run = Bench(
      server, {"--shapes=s1h1d8", "--requests=40", "--warmup=0", "--json=-"});
  EXPECT_EQ(run.code, kCheckFailed);
  EXPECT_THAT(run.err, HasSubstr("full"));
  const auto row = nlohmann::json::parse(run.out)["rows"][0];
  EXPECT_EQ(row["errors"]["RESOURCE_EXHAUSTED"], 10);
  EXPECT_EQ(row["answered"], 30);
}

TEST(BenchCommand, EndsWithTheErrorOfAServerThatAnswersNothing) {
  FakeServer server(
      [](grpc::ServerContext*, const v1::AttendRequest&, v1::AttendResponse*) {
        return grpc::Status(grpc::INVALID_ARGUMENT, "no");
      });
  EXPECT_EQ(Bench(server, {"--requests=3"}).code, kRefused);
}

TEST(BenchCommand, NamesTheBadFlag) {
  FakeServer server(EchoQ);
  for (const char* flag :
       {"--shapes=s1", "--concurrency=0", "--rate=-1", "--requests=0",
        "--seconds=0", "--connections=x", "--dtype=fp8", "--layout=sbhd",
        "--door=back", "--call=often", "--arrivals=never", "--warmup=-1"}) {
    const Outcome run = Bench(server, {flag});
    EXPECT_EQ(run.code, kUsage) << flag;
    const std::string name(flag, std::string(flag).find('='));
    EXPECT_THAT(run.err, HasSubstr("field  " + name)) << flag;
  }
  EXPECT_EQ(Bench(server, {"extra"}).code, kUsage);
  EXPECT_EQ(Bench(server, {"--requests=1", "--json=/nowhere/x"}).code, kUsage);
  EXPECT_EQ(server.calls(), 3);
}

TEST(BenchCommand, VerifyComparesWithTheUnaryDoor) {
  FakeServer good(EchoQ);
  EXPECT_EQ(Bench(good, {"--verify", "--requests=1", "--lse"}).code, kOk);
  std::atomic<int> calls = 0;
  FakeServer bad([&](grpc::ServerContext* context,
                     const v1::AttendRequest& request,
                     v1::AttendResponse* response) {
    const grpc::Status status = EchoQ(context, request, response);
    if (++calls == 2) (*response->mutable_output_data())[5] ^= 1;
    return status;
  });
  const Outcome run = Bench(bad, {"--verify", "--requests=1"});
  EXPECT_EQ(run.code, kInternalError);
  EXPECT_THAT(run.err, HasSubstr("not the unary door's"));
}

}  // namespace
}  // namespace attendant::client::cli
