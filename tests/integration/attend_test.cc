// Right answers, refusals and isolation through a real channel.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

#include "attendant/v1/error.pb.h"
#include "server/request/element_conversion.h"
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

// Input in one 16-bit type, computed in the other: the answer in the input's
// type is the fp32 answer, rounded once.
TEST(Attend, AnswersInTheInputsTypeWhateverIsComputedIn) {
  RealServer server;
  for (const auto& [input, compute] :
       {std::pair(kernels::DataType::kFloat16, v1::DATA_TYPE_BF16),
        std::pair(kernels::DataType::kBFloat16, v1::DATA_TYPE_FP16)}) {
    ProblemOptions options;
    options.dtype = input;
    options.batch = 2;
    options.num_q_heads = 4;
    options.num_kv_heads = 2;
    options.seqlen_q = options.seqlen_kv = 150;
    options.head_dim = 72;
    options.causal = true;
    const HostProblem problem(options);
    v1::AttendRequest request = ToWire(problem);
    request.set_compute_dtype(compute);
    v1::AttendResponse wide, narrow;
    request.set_output_dtype(v1::DATA_TYPE_FP32);
    ASSERT_TRUE(server.Attend(request, &wide).ok());
    request.set_output_dtype(v1::DATA_TYPE_UNSPECIFIED);
    const grpc::Status status = server.Attend(request, &narrow);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(narrow.output().dtype(), request.q().dtype());
    EXPECT_EQ(narrow.served_by().compute_dtype(), compute);
    EXPECT_EQ(narrow.lse_data(), wide.lse_data());
    std::string expected = wide.output_data();
    server::NarrowInPlace(reinterpret_cast<std::byte*>(expected.data()), input,
                          static_cast<int64_t>(expected.size() / 4));
    expected.resize(expected.size() / 2);
    EXPECT_TRUE(narrow.output_data() == expected);
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
  if (TestsOnCuda()) GTEST_SKIP() << "the malformed requests are fp32";
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

// A value that no honest answer holds, as one fp32 or as two bf16. So few bits
// that the mean of up to 128 copies is the value itself.
constexpr uint32_t kCanary = 0x5ec05ec0;

std::string Canaries(size_t bytes) {
  std::string all(bytes, '\0');
  for (size_t at = 0; at < bytes; at += sizeof(kCanary)) {
    std::memcpy(all.data() + at, &kCanary, sizeof(kCanary));
  }
  return all;
}

bool HoldsCanary(const std::string& bytes) {
  return bytes.find(Canaries(sizeof(kCanary))) != std::string::npos;
}

v1::AttendRequest CanaryRequest(int64_t rows) {
  const auto dtype = TestsOnCuda() ? v1::DATA_TYPE_BF16 : v1::DATA_TYPE_FP32;
  v1::AttendRequest request;
  const std::vector<int64_t> shape = {16, rows, 2, 64};
  SetTensor(dtype, v1::LAYOUT_BSHD, shape, request.mutable_q(),
            request.mutable_q_data());
  SetTensor(dtype, v1::LAYOUT_BSHD, shape, request.mutable_k(),
            request.mutable_k_data());
  SetTensor(dtype, v1::LAYOUT_BSHD, shape, request.mutable_v(),
            request.mutable_v_data());
  request.set_k_data(Canaries(request.k_data().size()));
  request.set_v_data(Canaries(request.v_data().size()));
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
        CanaryRequest(2), CanaryRequest(16), CanaryRequest(64)};
    for (int i = 0; !stop.stop_requested(); ++i) {
      v1::AttendResponse reply;
      const grpc::Status status = server.Attend(requests[i % 3], &reply);
      if (status.ok()) {
        EXPECT_TRUE(HoldsCanary(reply.output_data()));  // seen if it is there
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
      EXPECT_FALSE(HoldsCanary(reply.SerializeAsString()));
      ASSERT_TRUE(FromWire(reply, &problem)) << Describe(problem);
    }
  }
}

}  // namespace
}  // namespace attendant::testing
