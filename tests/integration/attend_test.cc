// Right answers, refusals and isolation through a real channel.
#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>
#include <thread>

#include "attendant/v1/error.pb.h"
#include "tests/integration/mixed_problems.h"
#include "tests/integration/real_server.h"
#include "tests/integration/wire_problem.h"
#include "tests/testing/malformed_requests.h"
#include "tests/testing/tensor_matchers.h"

namespace attendant::testing {
namespace {

using ::testing::HasSubstr;

v1::ErrorDetail DetailOf(const grpc::Status& status) {
  v1::RpcStatus rpc;
  v1::ErrorDetail detail;
  EXPECT_TRUE(rpc.ParseFromString(status.error_details()));
  if (rpc.details_size() > 0) rpc.details(0).UnpackTo(&detail);
  return detail;
}

TEST(Attend, EveryLayoutAndOptionIsRight) {
  RealServer server;
  for (const ProblemOptions& options : MixedProblems()) {
    HostProblem problem(options);
    v1::AttendResponse reply;
    const grpc::Status status = server.Attend(ToWire(problem), &reply);
    ASSERT_TRUE(status.ok())
        << status.error_message() << " for " << Describe(problem);
    ASSERT_TRUE(FromWire(reply, &problem)) << Describe(problem);
    EXPECT_TRUE(MatchesOracle(problem));
    const v1::StageTimes& t = reply.exposed();
    EXPECT_EQ(t.receive_ns() + t.queue_ns() + t.upload_ns() + t.kernel_ns() +
                  t.download_ns() + t.send_ns(),
              t.total_ns());
  }
}

// The bytes of an answer alone, and among many others at once.
TEST(Attend, NeighboursChangeNoBit) {
  RealServer server;
  std::vector<HostProblem> problems;
  std::vector<v1::AttendRequest> requests;
  std::vector<v1::AttendResponse> alone;
  for (const ProblemOptions& options : MixedProblems()) {
    problems.emplace_back(options);
    requests.push_back(ToWire(problems.back()));
    ASSERT_TRUE(server.Attend(requests.back(), &alone.emplace_back()).ok());
  }
  std::vector<std::jthread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      std::vector<size_t> order(requests.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = i;
      std::shuffle(order.begin(), order.end(), std::mt19937(t));
      for (const size_t i : order) {
        v1::AttendResponse reply;
        ASSERT_TRUE(server.Attend(requests[i], &reply).ok());
        EXPECT_EQ(reply.output_data(), alone[i].output_data())
            << Describe(problems[i]);
        EXPECT_EQ(reply.lse_data(), alone[i].lse_data());
      }
    });
  }
}

TEST(Attend, EveryMalformedRequestIsRefusedAndTheNextOneServed) {
  RealServer server;
  v1::AttendResponse good;
  ASSERT_TRUE(server.Attend(GoodRequest(), &good).ok());
  const auto all = MalformedRequests();
  EXPECT_GE(all.size(), 80u);
  for (const MalformedRequest& malformed : all) {
    SCOPED_TRACE(malformed.name);
    v1::AttendRequest request = GoodRequest();
    malformed.mutate(request);
    v1::AttendResponse reply;
    const grpc::Status status = server.Attend(request, &reply);
    EXPECT_EQ(static_cast<int>(status.error_code()),
              static_cast<int>(malformed.code))
        << status.error_message();
    const v1::ErrorDetail detail = DetailOf(status);
    EXPECT_EQ(detail.field(), malformed.field);
    EXPECT_THAT(detail.value(), HasSubstr(malformed.value));
    EXPECT_THAT(detail.bound(), HasSubstr(malformed.bound));
    ASSERT_TRUE(server.Attend(GoodRequest(), &reply).ok());
    EXPECT_EQ(reply.output_data(), good.output_data());
  }
}

// A value that no honest answer holds. Few bits, so that the mean of 2^n copies
// is the value itself.
const float kCanary = std::bit_cast<float>(0x5ec0d000u);

bool Holds(const std::string& bytes, float value) {
  std::string pattern(sizeof(value), '\0');
  std::memcpy(pattern.data(), &value, sizeof(value));
  return bytes.find(pattern) != std::string::npos;
}

v1::AttendRequest CanaryRequest(int64_t rows) {
  v1::AttendRequest request;
  SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_BSHD, {1, rows, 2, 64},
            request.mutable_q(), request.mutable_q_data());
  SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_BSHD, {1, rows, 2, 64},
            request.mutable_k(), request.mutable_k_data());
  SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_BSHD, {1, rows, 2, 64},
            request.mutable_v(), request.mutable_v_data());
  for (std::string* data :
       {request.mutable_k_data(), request.mutable_v_data()}) {
    for (size_t at = 0; at < data->size(); at += sizeof(kCanary)) {
      std::memcpy(data->data() + at, &kCanary, sizeof(kCanary));
    }
  }
  return request;
}

TEST(Attend, NothingOfAnotherCallerIsInAReply) {
  server::ServerOptions options = SmallServerOptions();
  options.engine.host_pool_bytes = int64_t{8} << 20;  // reused all the time
  options.engine.max_queued_bytes = options.engine.host_pool_bytes;
  options.bounds.max_queued_bytes = options.engine.host_pool_bytes;
  RealServer server(options);
  std::jthread spreader([&](std::stop_token stop) {
    const std::vector<v1::AttendRequest> requests = {
        CanaryRequest(16), CanaryRequest(256), CanaryRequest(1024)};
    for (int i = 0; !stop.stop_requested(); ++i) {
      v1::AttendResponse reply;
      const grpc::Status status = server.Attend(requests[i % 3], &reply);
      if (status.ok()) {
        EXPECT_TRUE(
            Holds(reply.output_data(), kCanary));  // seen if it is there
      } else {
        EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
      }
    }
  });
  for (int round = 0; round < 3; ++round) {
    for (const ProblemOptions& problem_options : MixedProblems()) {
      HostProblem problem(problem_options);
      v1::AttendResponse reply;
      grpc::Status status;
      do {
        status = server.Attend(ToWire(problem), &reply);
      } while (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
      ASSERT_TRUE(status.ok()) << status.error_message();
      EXPECT_FALSE(Holds(reply.SerializeAsString(), kCanary));
      ASSERT_TRUE(FromWire(reply, &problem)) << Describe(problem);
    }
  }
}

}  // namespace
}  // namespace attendant::testing
