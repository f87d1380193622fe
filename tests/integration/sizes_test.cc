// Every size that a message can carry, through the RPC: head sizes, groups,
// tails around tiles' edges, a large batch; and strangers at the same time.
// ATTENDANT_TEST_BACKEND=cuda asks a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/mixed_problems.h"
#include "tests/integration/real_server.h"
#include "tests/integration/wire_problem.h"
#include "tests/testing/random.h"
#include "tests/testing/tensor_matchers.h"

namespace attendant::testing {
namespace {

using kernels::DataType;

RealServer& SharedServer() {
  static RealServer server([] {
    server::ServerOptions options = SmallServerOptions();
    if (TestsOnCuda()) options.engine.device_pool_bytes = int64_t{1} << 30;
    return options;
  }());
  return server;
}

// Types that the backend computes in, by turns.
DataType TypeOf(int64_t turn) {
  constexpr DataType kTypes[] = {DataType::kBFloat16, DataType::kFloat16,
                                 DataType::kFloat32};
  return kTypes[turn % (TestsOnCuda() ? 2 : 3)];
}

void Check(const ProblemOptions& options) {
  HostProblem problem(options);
  v1::AttendResponse reply;
  const grpc::Status status = SharedServer().Attend(ToWire(problem), &reply);
  ASSERT_TRUE(status.ok()) << status.error_message() << " for "
                           << Describe(problem);
  ASSERT_TRUE(FromWire(reply, &problem)) << Describe(problem);
  ASSERT_TRUE(MatchesOracle(problem));
}

TEST(Sizes, EveryHeadSizeBesideAnother) {
  for (int64_t size = 1; size <= 256; ++size) {
    ProblemOptions options;
    options.dtype = TypeOf(size);
    options.head_dim = size;
    options.head_dim_v = size % 2 == 0 ? size : 257 - size;
    options.num_q_heads = 2;
    options.seqlen_q = size % 3 == 0 ? 1 : 18;
    options.seqlen_kv = 21;
    options.causal = options.bottom_right = size % 5 == 0;
    options.seed = static_cast<uint64_t>(size);
    ASSERT_NO_FATAL_FAILURE(Check(options));
  }
}

TEST(Sizes, HeadSize257IsRefusedByName) {
  for (const bool of_v : {false, true}) {
    ProblemOptions options;
    options.dtype = TypeOf(0);
    options.head_dim = of_v ? 64 : 257;
    options.head_dim_v = of_v ? 257 : 64;
    v1::AttendResponse reply;
    const grpc::Status status =
        SharedServer().Attend(ToWire(HostProblem(options)), &reply);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_NE(status.error_message().find("257, must be 1..256"),
              std::string::npos)
        << status.error_message();
  }
}

TEST(Sizes, EveryGroupOfQueryHeads) {
  for (int64_t group = 1; group <= 128; ++group) {
    ProblemOptions options;
    options.dtype = TypeOf(group);
    options.head_dim = group % 2 == 0 ? 64 : 24;
    options.num_kv_heads = 1 + group % 3 % 2;
    options.num_q_heads = group * options.num_kv_heads;
    options.seqlen_q = 1 + group % 4;
    options.seqlen_kv = 40 + group;
    options.causal = options.bottom_right = group % 5 < 2;
    options.seed = static_cast<uint64_t>(group);
    ASSERT_NO_FATAL_FAILURE(Check(options));
  }
}

TEST(Sizes, TailsAroundEveryTileEdge) {
  std::vector<int64_t> lengths = {1, 2, 15, 16, 17};
  for (const int64_t edge : {64, 80, 112, 128, 176, 192, 256}) {
    for (const int64_t around : {-1, 0, 1}) lengths.push_back(edge + around);
  }
  const auto count = static_cast<int64_t>(lengths.size());
  for (const int64_t head_dim : {64, 128, 256}) {
    // Every length of q meets three of k, and the other way round.
    for (int64_t turn = 0; turn < 3 * count; ++turn) {
      ProblemOptions options;
      options.dtype = TypeOf(turn);
      options.head_dim = head_dim;
      options.seqlen_q = lengths[turn % count];
      options.seqlen_kv = lengths[(turn + 9 * (turn / count) + 1) % count];
      options.causal = turn % 2 == 0;
      options.bottom_right = turn % 4 == 0;
      options.seed = static_cast<uint64_t>(turn + 1);
      ASSERT_NO_FATAL_FAILURE(Check(options));
    }
  }
}

// More sequences than a grid's second dimension holds, dense and packed.
TEST(Sizes, SeventyThousandSequences) {
  constexpr int64_t kBatch = 70'000;
  for (const Layout layout : {Layout::kBshd, Layout::kThd}) {
    ProblemOptions options;
    options.dtype = TypeOf(0);
    options.layout = layout;
    options.batch = kBatch;
    options.head_dim = 8;
    options.seqlen_q = 2;
    options.seqlen_kv = 3;
    options.random = false;  // q = 0: the mean of V
    HostProblem problem(options);
    problem.FillV([](int64_t b, int64_t, int64_t, int64_t) {
      return static_cast<float>(b % 127 + 1);
    });
    v1::AttendResponse reply;
    const grpc::Status status = SharedServer().Attend(ToWire(problem), &reply);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_TRUE(FromWire(reply, &problem));
    EXPECT_EQ(problem.OutputDamage(), "");
    for (int64_t b = 0; b < kBatch; ++b) {
      const float want = static_cast<float>(b % 127 + 1);
      for (const int64_t row : {0, 1}) {
        ASSERT_NEAR(problem.Out(b, row, 0, 7), want, want * 0.004) << b;
      }
    }
  }
}

// What 32 callers send at the same moment, over and over.
class Strangers {
 public:
  static constexpr int64_t kCallers = 32;

  Strangers() {
    for (const ProblemOptions& options : MixedProblems()) {
      requests_.push_back(ToWire(HostProblem(options)));
      const grpc::Status status =
          SharedServer().Attend(requests_.back(), &alone_.emplace_back());
      EXPECT_TRUE(status.ok()) << status.error_message();
    }
    for (int64_t c = 0; c < kCallers; ++c) {
      stubs_.push_back(ConnectTo(SharedServer().address()));
    }
  }

  // Callers 0 to `strangers` each send one request, drawn from `round`'s own
  // numbers, at once; the largest batch that one of them was in.
  int64_t Round(int64_t round, int64_t strangers) {
    std::vector<int64_t> batches(static_cast<size_t>(strangers + 1), 0);
    std::barrier start(strangers + 1);
    {
      std::vector<std::jthread> callers;
      for (int64_t c = 0; c <= strangers; ++c) {
        RandomBits bits(static_cast<uint64_t>(1000 * round + c));
        callers.emplace_back(
            [&, c, which = bits.Below(static_cast<int64_t>(requests_.size()))] {
              grpc::ClientContext context;
              context.set_wait_for_ready(true);
              v1::AttendResponse reply;
              start.arrive_and_wait();
              const grpc::Status status =
                  stubs_[c]->Attend(&context, requests_[which], &reply);
              EXPECT_TRUE(status.ok()) << status.error_message();
              EXPECT_TRUE(reply.output_data() == alone_[which].output_data() &&
                          reply.lse_data() == alone_[which].lse_data())
                  << "request " << which << " beside " << strangers
                  << " strangers in round " << round;
              batches[c] = reply.batch().requests();
            });
      }
    }
    return *std::max_element(batches.begin(), batches.end());
  }

 private:
  std::vector<v1::AttendRequest> requests_;
  std::vector<v1::AttendResponse> alone_;
  std::vector<std::unique_ptr<v1::AttentionService::Stub>> stubs_;
};

TEST(Sizes, OneToThirtyOneStrangersInAHundredOrderingsChangeNoBit) {
  Strangers strangers;
  int shared = 0;
  for (int64_t round = 0; round < 100; ++round) {
    shared += strangers.Round(round, 1 + round % 31) > 1;
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
  RecordProperty("rounds_with_a_shared_launch", shared);
  // Alone in every launch, nobody would have been anybody's neighbour.
  EXPECT_GT(shared, 20);
}

}  // namespace
}  // namespace attendant::testing
