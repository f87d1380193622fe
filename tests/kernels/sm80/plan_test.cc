// Planning of the sm80 kernel; needs no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

#include "kernels/sm80/launch_plan.h"
#include "kernels/sm80/sm80_attention.h"

namespace attendant::kernels::sm80 {
namespace {

using ::testing::HasSubstr;
using TileRun = Run;  // in a test's body, Run is gtest's

constexpr DeviceProperties kH200{90, 132, 232448};
constexpr DeviceProperties kA100{80, 108, 166912};
constexpr DeviceProperties kConsumer{89, 128, 101376};

AttentionProblem Contiguous(int64_t batch, int64_t len_q, int64_t len_kv,
                            int64_t q_heads, int64_t kv_heads,
                            int64_t head_dim) {
  AttentionProblem problem;
  problem.dtype = problem.output_dtype = DataType::kBFloat16;
  problem.batch = batch;
  problem.num_q_heads = problem.whole_num_q_heads = q_heads;
  problem.num_kv_heads = problem.whole_num_kv_heads = kv_heads;
  problem.head_dim = problem.head_dim_v = head_dim;
  problem.rows_q = len_q;
  problem.q = {nullptr, len_q * q_heads * head_dim, q_heads * head_dim,
               head_dim};
  problem.k = problem.v = {nullptr, len_kv * kv_heads * head_dim,
                           kv_heads * head_dim, head_dim};
  problem.out = {nullptr, len_q * q_heads * head_dim, q_heads * head_dim,
                 head_dim};
  problem.sequences = {
      {.len_q = len_q, .len_kv = len_kv, .whole_len_q = len_q}};
  problem.softmax_scale = 0.1f;
  return problem;
}

std::vector<LaunchPlan> PlanOf(const DeviceProperties& device,
                               const std::vector<AttentionProblem>& problems) {
  std::vector<const AttentionProblem*> pointers;
  for (const AttentionProblem& problem : problems) pointers.push_back(&problem);
  auto plans = PlanLaunches(device, pointers);
  EXPECT_TRUE(plans.ok()) << plans.status();
  return *std::move(plans);
}

TEST(KeyOfTest, MasksModifiersOddScalesAndNarrowRowsNeedTheGeneralVariant) {
  const AttentionProblem plain = Contiguous(1, 64, 64, 2, 1, 128);
  EXPECT_FALSE(KeyOf(plain).general);
  EXPECT_EQ(KeyOf(plain).head_class, 1);

  AttentionProblem problem = plain;
  problem.causal = true;
  problem.window_left = 3;
  const float sinks[2] = {0, 1};
  problem.sinks = sinks;
  EXPECT_FALSE(KeyOf(problem).general) << "causal, window and sinks are plain";
  for (const float scale : {0.0f, -1.0f, 1e-40f, 3e38f}) {
    problem = plain;
    problem.softmax_scale = scale;
    EXPECT_TRUE(KeyOf(problem).general) << scale;
  }
  problem = plain;
  problem.softcap = 30;
  EXPECT_TRUE(KeyOf(problem).general);
  problem = plain;
  problem.alibi_slopes = sinks;
  EXPECT_TRUE(KeyOf(problem).general);
  problem = plain;
  problem.mask.kind = MaskKind::kBoolBits;
  EXPECT_TRUE(KeyOf(problem).general);
  EXPECT_TRUE(KeyOf(Contiguous(1, 64, 64, 8, 8, 71)).general);
  EXPECT_FALSE(KeyOf(Contiguous(1, 64, 64, 8, 8, 72)).general);
  problem = plain;
  problem.k.row_stride += 4;
  EXPECT_EQ(CopyBytes(problem), 8);
  EXPECT_TRUE(KeyOf(problem).general);
  problem.v.head_stride = 33;
  EXPECT_EQ(CopyBytes(problem), 2);
}

TEST(KeyOfTest, EveryPairOfHeadSizesHasTheClassOfTheWider) {
  for (int64_t qk = 1; qk <= 256; ++qk) {
    for (const int64_t v : {int64_t{1}, qk, int64_t{256}}) {
      const int head_class = HeadClass(qk, v);
      ASSERT_GE(kPlainTiles[head_class].head_dim, std::max(qk, v));
      ASSERT_LT(kPlainTiles[head_class].head_dim - 64, std::max(qk, v));
    }
  }
}

TEST(FitSharedTest, EveryTileFitsEveryDeviceFromConsumerCardsOn) {
  for (const DeviceProperties& device : {kH200, kA100, kConsumer}) {
    const int64_t optin = device.shared_memory_per_block_optin;
    for (const auto& tiles : {kPlainTiles, kGeneralTiles}) {
      for (int head_class = 0; head_class < kNumClasses; ++head_class) {
        const TileShape& tile = tiles[head_class];
        const int rows = TileRowsThatFit(tile, optin);
        ASSERT_GE(rows, tile.rows() / 2) << tile.head_dim;
        EXPECT_EQ(rows % tile.warp_rows, 0);
        const SharedLayout layout = FitShared(tile, rows, optin);
        EXPECT_GE(layout.ring_slots, 2);
        EXPECT_LE(layout.bytes + kStaticShared, optin);
      }
    }
  }
  EXPECT_EQ(FitShared(kPlainTiles[1], 128, kH200.shared_memory_per_block_optin)
                .ring_slots,
            4);
  EXPECT_EQ(TileRowsThatFit(kPlainTiles[3], 48 << 10), 0);
}

// Walks a plan's tiles as work.cuh does and counts each (run, batch entry, head
// unit, m-tile, split).
using TileKey = std::tuple<int32_t, uint32_t, int32_t, uint32_t>;
std::multiset<TileKey> Walk(const LaunchPlan& plan) {
  std::multiset<TileKey> seen;
  size_t at = 0;
  for (int64_t tile = 0; tile < plan.num_tiles; ++tile) {
    while (at + 1 < plan.segments.size() &&
           plan.segments[at + 1].first_tile <= tile) {
      ++at;
    }
    const Segment& segment = plan.segments[at];
    const TileRun& run = plan.runs[segment.run];
    const uint32_t t = static_cast<uint32_t>(tile) - segment.first_tile;
    const uint32_t split = t % run.splits;
    const uint32_t rest_of_splits = t / run.splits;
    const uint32_t section = segment.section;
    const uint32_t units = run.batch_count * run.head_units;
    const uint32_t s = rest_of_splits / (section * segment.m_count);
    const uint32_t rest = rest_of_splits - s * section * segment.m_count;
    const uint32_t width = std::min(section, units - s * section);
    seen.insert({segment.run, s * section + rest % width,
                 segment.m_begin + segment.m_count - 1 -
                     static_cast<int32_t>(rest / width),
                 split});
  }
  return seen;
}

TEST(PlanLaunchesTest, EveryTileIsVisitedOnce) {
  std::vector<AttentionProblem> problems = {
      Contiguous(3, 300, 9000, 6, 2, 128), Contiguous(2, 1, 5000, 8, 2, 128),
      Contiguous(1, 129, 4096, 2, 2, 128), Contiguous(5, 7, 3, 3, 1, 128)};
  problems[0].causal = true;
  for (size_t n = 1; n <= problems.size(); ++n) {
    const auto plans = PlanOf(
        kH200,
        std::vector<AttentionProblem>(problems.begin(), problems.begin() + n));
    ASSERT_EQ(plans.size(), 1u);
    const LaunchPlan& plan = plans[0];
    const std::multiset<TileKey> seen = Walk(plan);
    int64_t expected = 0;
    for (const TileRun& run : plan.runs) {
      const int64_t m_tiles =
          (int64_t{run.len_q} * run.pack + run.tile_rows - 1) / run.tile_rows;
      expected += m_tiles * run.batch_count * run.head_units * run.splits;
    }
    EXPECT_EQ(plan.num_tiles, expected);
    EXPECT_EQ(static_cast<int64_t>(seen.size()), expected);
    EXPECT_EQ(std::set<TileKey>(seen.begin(), seen.end()).size(), seen.size());
    for (const auto& [run, unit, m, split] : seen) {
      const TileRun& r = plan.runs[run];
      ASSERT_LT(unit, static_cast<uint32_t>(r.batch_count * r.head_units));
      ASSERT_LT(int64_t{m} * r.tile_rows, int64_t{r.len_q} * r.pack);
      ASSERT_LT(split, static_cast<uint32_t>(r.splits));
    }
  }
}

TEST(PlanLaunchesTest, SplitRunsComeFirstAndTheirPartialsDoNotOverlap) {
  const auto plans = PlanOf(kH200, {Contiguous(1, 300, 300, 4, 4, 64),
                                    Contiguous(2, 1, 4096, 8, 2, 64),
                                    Contiguous(1, 4, 9000, 8, 1, 64)});
  const LaunchPlan& plan = plans[0];
  ASSERT_EQ(plan.runs.size(), 3u);
  EXPECT_GT(plan.runs[0].splits, 1);
  EXPECT_GT(plan.runs[1].splits, 1);
  EXPECT_EQ(plan.runs[2].splits, 1);
  EXPECT_EQ(plan.num_split_rows, 2 * 8 + 4 * 8);
  EXPECT_EQ(plan.runs[2].first_row, plan.num_split_rows);
  EXPECT_EQ(plan.num_rows, plan.num_split_rows + 300 * 4);
  int64_t end = 0;
  for (const TileRun& run : {plan.runs[0], plan.runs[1]}) {
    const int64_t pairs = int64_t{run.batch_count} * run.head_units * run.pack *
                          run.len_q * run.splits;
    EXPECT_EQ(run.partial_ml, end);
    EXPECT_EQ(run.partial_o, end + 2 * pairs);
    end = run.partial_o + 64 * pairs;
  }
  EXPECT_EQ(end, plan.partial_floats);
  EXPECT_EQ(plan.member_partial_floats[0], 0);
}

TEST(PlanLaunchesTest, LongestTilesStartFirst) {
  std::vector<AttentionProblem> problems;
  for (const int64_t length : {100, 5000, 700, 2000}) {
    problems.push_back(Contiguous(1, length, length, 4, 4, 128));
    problems.back().causal = true;
  }
  const auto plans = PlanOf(kH200, problems);
  int64_t last = int64_t{1} << 40;
  for (const Segment& segment : plans[0].segments) {
    const TileRun& run = plans[0].runs[segment.run];
    const int64_t keys = std::min<int64_t>(
        run.len_kv, (segment.m_begin + segment.m_count) * run.tile_rows);
    EXPECT_LE(keys, last);
    last = keys;
  }
}

TEST(SplitKeysTest, DependsOnTheRequestAloneNotOnBatchOrCuts) {
  const AttentionProblem one = Contiguous(1, 1, 8192, 64, 8, 128);
  const AttentionProblem many = Contiguous(128, 1, 8192, 64, 8, 128);
  const AttentionProblem cut = CutProblem(many, 3, 5, 2, 3);
  const KeySplit split = SplitKeys(one, one.sequences[0], 64);
  EXPECT_GT(split.splits, 1);
  EXPECT_EQ(split.chunk % 64, 0);
  for (const AttentionProblem& other : {many, cut}) {
    const KeySplit same = SplitKeys(other, other.sequences[0], 64);
    EXPECT_EQ(same.splits, split.splits);
    EXPECT_EQ(same.chunk, split.chunk);
    EXPECT_EQ(PackedHeads(other, other.sequences[0]), 8);
  }
}

TEST(SplitKeysTest, CoversAllKeysAndLeavesPrefillWhole) {
  for (int64_t keys = 1; keys < 200000; keys = keys * 5 / 4 + 1) {
    const AttentionProblem problem = Contiguous(1, 1, keys, 8, 1, 128);
    const KeySplit split = SplitKeys(problem, problem.sequences[0], 64);
    if (split.splits == 1) continue;
    EXPECT_GE(int64_t{split.splits} * split.chunk, keys);
    EXPECT_LT((int64_t{split.splits} - 1) * split.chunk, keys);
  }
  for (const int64_t length : {512, 1024, 2048, 16384}) {
    const AttentionProblem problem =
        Contiguous(16384 / length, length, length, 16, 16, 128);
    EXPECT_EQ(SplitKeys(problem, problem.sequences[0], 64).splits, 1);
  }
}

TEST(PlanTest, PrefillNeedsNoWorkspaceAndOneProblemNoDescriptors) {
  const AttentionProblem problem = Contiguous(2, 4096, 4096, 16, 16, 128);
  const AttentionProblem* pointer = &problem;
  const auto plan = Plan(kH200, {&pointer, 1});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->workspace_bytes(), 0);
  EXPECT_EQ((*plan)->descriptor_bytes(), 0);
  EXPECT_EQ((*plan)->repair_flag_offset(), 0);
}

TEST(PlanTest, EmptyProblemsPlanNothing) {
  for (const auto& problem :
       {Contiguous(0, 4, 4, 2, 2, 64), Contiguous(3, 0, 4, 2, 2, 64),
        Contiguous(1, 4, 4, 0, 0, 64)}) {
    for (const LaunchPlan& plan : PlanOf(kH200, {problem})) {
      EXPECT_EQ(plan.num_tiles, 0);
    }
  }
  EXPECT_EQ(PlanOf(kH200, {Contiguous(2, 300, 0, 2, 2, 64)})[0].num_tiles, 12);
}

TEST(PlanTest, ShiftsOfAnySizeStayInBounds) {
  AttentionProblem problem = Contiguous(1, 10, 20, 1, 1, 64);
  problem.window_left = problem.window_right =
      std::numeric_limits<int64_t>::max();
  const TileRun open = PlanOf(kH200, {problem})[0].runs[0];
  EXPECT_EQ(open.lo_shift, -kMaxSequence);
  EXPECT_EQ(open.hi_shift, kMaxSequence);
  problem.causal = true;
  problem.window_left = 0;
  problem.sequences[0].diagonal_shift = -(int64_t{1} << 40);
  const TileRun none = PlanOf(kH200, {problem})[0].runs[0];
  EXPECT_EQ(none.hi_shift, -kMaxSequence);
}

TEST(WhyNotTest, NamesTheBoundOfWhatItDoesNotServe) {
  AttentionProblem problem = Contiguous(1, 1, 64, 1, 1, 64);
  EXPECT_EQ(WhyNot(kConsumer, problem), "");
  problem.sequences[0].len_kv = kMaxSequence + 1;
  EXPECT_THAT(WhyNot(kH200, problem), HasSubstr("1073741824"));
  problem = Contiguous(1, 1, 64, 1, 1, 256);
  EXPECT_THAT(WhyNot({80, 1, 49152}, problem), HasSubstr("49152"));
  problem.output_dtype = DataType::kFloat16;
  EXPECT_NE(WhyNot(kH200, problem), "");
}

TEST(WriteBlobTest, RefusesPointersAlignedWorseThanPlanned) {
  AttentionProblem problem = Contiguous(1, 64, 64, 1, 1, 64);
  const auto plans = PlanOf(kH200, {problem});
  problem.k.data = reinterpret_cast<const void*>(uintptr_t{256 + 2});
  const AttentionProblem* pointer = &problem;
  std::vector<std::byte> blob(plans[0].blob_bytes);
  const absl::Status status = WriteBlob(plans[0], {&pointer, 1}, blob.data());
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  problem.k.data = reinterpret_cast<const void*>(uintptr_t{256});
  EXPECT_TRUE(WriteBlob(plans[0], {&pointer, 1}, blob.data()).ok());
}

}  // namespace
}  // namespace attendant::kernels::sm80
