// What is the CPU backend's own: instruction sets, threads, memory. The meaning
// of every option is checked for all kernels by ../conformance.
#include "kernels/cpu/cpu_attention.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/thread_pool.h"
#include "tests/testing/attention_runner.h"
#include "tests/testing/host_problem.h"
#include "tests/testing/tensor_matchers.h"

namespace attendant::kernels::cpu {
namespace {

using attendant::testing::HostProblem;
using attendant::testing::MatchesOracle;
using attendant::testing::ProblemOptions;
using attendant::testing::RunAlone;
using attendant::testing::RunGrouped;
using attendant::testing::SameAnswer;

std::vector<ProblemOptions> Cases() {
  std::vector<ProblemOptions> cases;
  for (DataType dtype :
       {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16}) {
    ProblemOptions base;
    base.dtype = dtype;
    base.batch = 2;
    base.num_q_heads = 4;
    base.num_kv_heads = 2;
    base.seqlen_q = 130;
    base.seqlen_kv = 300;
    ProblemOptions o = base;
    cases.push_back(o);
    o.causal = o.bottom_right = o.sinks = true;
    o.head_dim = 33;
    o.head_dim_v = 21;
    cases.push_back(o);
    o = base;
    o.softcap = 1.5f;
    o.alibi = o.bottom_right = true;
    o.window_left = 100;
    o.window_right = 20;
    o.mask = MaskKind::kBoolBits;
    o.mask_per_head = true;
    cases.push_back(o);
    o.mask = MaskKind::kAdditive;
    o.seqlen_q = 2;
    o.window_left = 250;
    cases.push_back(o);
    o = base;
    o.seqlen_q = 1;  // decode, split keys
    o.seqlen_kv = 1500;
    o.head_dim = 128;
    cases.push_back(o);
    o.num_q_heads = 20;  // tiles, split keys
    cases.push_back(o);
    o = base;
    o.num_q_heads = 21;  // decode, several heads at once with few threads
    o.num_kv_heads = 7;
    o.seqlen_q = 2;
    o.seqlen_kv = 2049;
    o.head_dim = 72;
    o.head_dim_v = 130;
    o.causal = o.bottom_right = o.sinks = o.alibi = true;
    o.window_left = 2000;
    o.mask = MaskKind::kBoolBytes;
    o.mask_per_head = true;
    cases.push_back(o);
  }
  return cases;
}

class CpuAttentionTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    before_ = ActiveSimdKernels().name;
    ASSERT_TRUE(SetActiveSimdKernels(GetParam()));
  }
  void TearDown() override { SetActiveSimdKernels(before_); }

 private:
  std::string before_;
};

TEST_P(CpuAttentionTest, AgreesWithTheOracle) {
  for (const ProblemOptions& options : Cases()) {
    HostProblem problem(options);
    ASSERT_TRUE(RunAlone("cpu", problem).ok());
    EXPECT_TRUE(MatchesOracle(problem));
  }
}

TEST_P(CpuAttentionTest, ThreadsNeighboursAndCutsDoNotChangeABit) {
  std::vector<HostProblem> alone, together;
  for (const ProblemOptions& options : Cases()) {
    alone.emplace_back(options);
    ASSERT_TRUE(RunAlone("cpu", alone.back(), {.num_threads = 1}).ok());
    together.emplace_back(options);
  }
  std::vector<HostProblem*> all;
  for (HostProblem& problem : together) all.push_back(&problem);
  for (int threads : {2, 3, 16}) {
    for (int cut : {0, 1}) {
      ASSERT_TRUE(
          RunGrouped(
              "cpu", all,
              {.cut_batch = cut, .cut_kv_heads = cut, .num_threads = threads})
              .ok());
      for (size_t i = 0; i < alone.size(); ++i) {
        EXPECT_TRUE(SameAnswer(alone[i], together[i])) << threads << cut;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryTarget, CpuAttentionTest, ::testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const SimdKernels& simd : AllSimdKernels()) {
                             names.push_back(simd.name);
                           }
                           return names;
                         }()),
                         [](const auto& info) { return info.param; });

TEST(CpuPlanTest, WorkspaceStaysBelowOneMegabyteAThreadAtAnyLength) {
  for (int64_t seqlen : {1, 512, 4096, 1 << 17, 1 << 20}) {
    for (int64_t seqlen_q : {int64_t{1}, int64_t{16}, seqlen}) {
      for (int64_t dim : {64, 128, 256}) {
        AttentionProblem problem;
        problem.batch = 8;
        problem.num_q_heads = problem.whole_num_q_heads = 32;
        problem.num_kv_heads = problem.whole_num_kv_heads = 8;
        problem.head_dim = problem.head_dim_v = dim;
        problem.rows_q = seqlen_q;
        problem.k.head_stride = problem.v.head_stride = dim;  // BSHD
        problem.k.row_stride = problem.v.row_stride = 8 * dim;
        problem.sequences = {
            {.len_q = seqlen_q, .len_kv = seqlen, .whole_len_q = seqlen_q}};
        const AttentionProblem* const problems[] = {&problem};
        for (int threads : {1, 2, 16}) {
          const auto plan = Plan({.num_sms = threads}, problems);
          ASSERT_TRUE(plan.ok());
          EXPECT_LE((*plan)->workspace_bytes(), threads << 20)
              << seqlen_q << " " << seqlen << " " << dim << " " << threads;
          EXPECT_EQ((*plan)->workspace_bytes_of(0), (*plan)->workspace_bytes());
        }
      }
    }
  }
}

TEST(CpuPlanTest, RefusesMoreThreadsThanPlannedAndAMissingWorkspace) {
  HostProblem host(ProblemOptions{});
  const AttentionProblem* const problems[] = {&host.problem()};
  const auto plan = Plan({.num_sms = 1}, problems);
  ASSERT_TRUE(plan.ok());
  ThreadPool pool(2);
  std::vector<float> workspace((*plan)->workspace_bytes() / sizeof(float));
  LaunchContext context{.thread_pool = &pool, .workspace = workspace.data()};
  EXPECT_EQ((*plan)->Launch(context).code(),
            absl::StatusCode::kInvalidArgument);
  context = {};
  EXPECT_EQ((*plan)->Launch(context).code(),
            absl::StatusCode::kInvalidArgument);
  context.workspace = workspace.data();
  EXPECT_TRUE((*plan)->Launch(context).ok());
}

TEST(CpuPlanTest, ALaunchThatNobodyWantsAnyMoreEndsEarly) {
  ThreadPool pool(2);
  for (const int64_t seqlen_q : {1, 300}) {  // keys are split, or not
    ProblemOptions options;
    options.seqlen_q = seqlen_q;
    options.seqlen_kv = 5000;
    HostProblem host(options);
    const AttentionProblem* const problems[] = {&host.problem()};
    const auto plan = Plan({.num_sms = 2}, problems);
    ASSERT_TRUE(plan.ok());
    std::vector<float> workspace((*plan)->workspace_bytes() / sizeof(float));
    LaunchContext context{.thread_pool = &pool, .workspace = workspace.data()};
    std::atomic<int> asked{0};
    const std::function<bool()> after_three = [&] { return ++asked > 3; };
    context.unwanted = &after_three;
    EXPECT_TRUE(absl::IsCancelled((*plan)->Launch(context)));
    const std::function<bool()> never = [] { return false; };
    context.unwanted = &never;
    ASSERT_TRUE((*plan)->Launch(context).ok());
    EXPECT_TRUE(MatchesOracle(host));
  }
}

TEST(CpuPlanTest, LaunchesShareAPool) {
  ThreadPool pool(2);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&pool, caller] {
      ProblemOptions options;
      options.num_q_heads = 2 + caller;
      options.seqlen_q = 60 * caller + 1;
      options.seqlen_kv = 700;
      options.causal = options.bottom_right = true;
      HostProblem problem(options);
      const AttentionProblem* const problems[] = {&problem.problem()};
      const auto plan = Plan({.num_sms = 2}, problems);
      ASSERT_TRUE(plan.ok());
      std::vector<float> workspace((*plan)->workspace_bytes() / sizeof(float));
      for (int round = 0; round < 5; ++round) {
        ASSERT_TRUE(
            (*plan)
                ->Launch({.thread_pool = &pool, .workspace = workspace.data()})
                .ok());
      }
      EXPECT_TRUE(MatchesOracle(problem));
    });
  }
  for (std::thread& caller : callers) caller.join();
}

// One head's V is infinite where its rows see it, another's where they do not:
// heads that are computed at once are told apart.
TEST(CpuPlanTest, HeadsAtOnceKeepWhatIsNotFiniteApart) {
  ProblemOptions options;
  options.num_q_heads = 8;
  options.num_kv_heads = 4;
  options.seqlen_kv = 5000;
  options.window_left = 1500;
  options.bottom_right = true;
  HostProblem together(options), alone(options);
  const float infinity = std::numeric_limits<float>::infinity();
  for (HostProblem* problem : {&together, &alone}) {
    problem->SetV(0, 4500, 1, 3, infinity);
    problem->SetV(0, 3490, 2, 5, infinity);
  }
  ASSERT_TRUE(RunAlone("cpu", together, {.num_threads = 1}).ok());
  ASSERT_TRUE(
      RunAlone("cpu", alone, {.cut_kv_heads = 1, .num_threads = 16}).ok());
  EXPECT_TRUE(SameAnswer(together, alone));
  EXPECT_EQ(together.Out(0, 0, 2, 3), infinity);
  EXPECT_TRUE(std::isfinite(together.Out(0, 0, 4, 5)));
}

// Split keys on nodes that take tasks of their own segments: as many slots for
// partial results as threads are enough, and no bit changes.
TEST(CpuPlanTest, NumaNodesDoNotChangeABit) {
  ThreadPool pool(6, NumaTopology{{{0, 1}, {100000, 100001}, {2, 3}}});
  ProblemOptions options;
  options.batch = 2;
  options.num_q_heads = options.num_kv_heads = 5;
  options.seqlen_q = 20;
  options.seqlen_kv = 4000;
  HostProblem alone(options), spread(options);
  ASSERT_TRUE(RunAlone("cpu", alone, {.num_threads = 1}).ok());
  const AttentionProblem* const problems[] = {&spread.problem()};
  const auto plan = Plan({.num_sms = 6}, problems);
  ASSERT_TRUE(plan.ok());
  std::vector<float> workspace((*plan)->workspace_bytes() / sizeof(float));
  for (int round = 0; round < 20; ++round) {
    ASSERT_TRUE(
        (*plan)
            ->Launch({.thread_pool = &pool, .workspace = workspace.data()})
            .ok());
    ASSERT_TRUE(SameAnswer(alone, spread)) << round;
  }
}

}  // namespace
}  // namespace attendant::kernels::cpu
