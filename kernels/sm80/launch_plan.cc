#include "kernels/sm80/launch_plan.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace attendant::kernels::sm80 {
namespace {

// CTAs that a sequence should make to fill a large GPU (two on each of 132
// SMs). A constant, not the device's: splits must not depend on it.
constexpr int64_t kWantedTiles = 264;
constexpr int64_t kEnoughTiles = 128;
constexpr int64_t kRowsPerTile = 128;
constexpr int64_t kThinRows = 64;
// Fewest keys of a split: partials cost more the more rows there are.
constexpr int64_t kMinThinChunk = 512;
constexpr int64_t kMinChunk = 2048;
// Heads that run side by side should find their K and V in L2.
constexpr int64_t kSectionBytes = int64_t{24} << 20;
// Bounds the descriptors of launches with many sequences.
constexpr int64_t kMaxSegments = 8192;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t RoundUp(int64_t a, int64_t b) { return CeilDiv(a, b) * b; }

int32_t ClampShift(int64_t shift) {
  return static_cast<int32_t>(
      std::clamp<int64_t>(shift, -kMaxSequence, kMaxSequence));
}

// Sums of anything a caller may send, kept within +-2^62.
int64_t SaturatingAdd(int64_t a, int64_t b) {
  constexpr int64_t kBound = int64_t{1} << 61;
  return std::clamp(a, -kBound, kBound) + std::clamp(b, -kBound, kBound);
}

void SetShifts(const AttentionProblem& problem, const SequenceBounds& sequence,
               Run* run) {
  const int64_t shift = sequence.diagonal_shift;
  int64_t high = kMaxSequence;
  if (problem.causal) high = std::min(high, SaturatingAdd(shift, 1));
  if (problem.window_right != kWindowOpen) {
    high = std::min(
        high, SaturatingAdd(shift, SaturatingAdd(problem.window_right, 1)));
  }
  int64_t low = -kMaxSequence;
  if (problem.window_left != kWindowOpen) {
    low = SaturatingAdd(shift, -problem.window_left);
  }
  run->hi_shift = ClampShift(high);
  run->lo_shift = ClampShift(low);
  run->diagonal_shift = ClampShift(shift);
}

Run MakeRun(const AttentionProblem& problem, int64_t batch_begin,
            int64_t batch_count, const TileShape& tile, int max_tile_rows) {
  const SequenceBounds& sequence = problem.sequence(batch_begin);
  Run run = {};
  run.q_begin = sequence.q_begin;
  run.kv_begin = sequence.kv_begin;
  run.batch_begin = static_cast<int32_t>(batch_begin);
  run.batch_count = static_cast<int32_t>(batch_count);
  run.len_q = static_cast<int32_t>(sequence.len_q);
  run.len_kv = static_cast<int32_t>(sequence.len_kv);
  SetShifts(problem, sequence, &run);
  run.pack = static_cast<int32_t>(PackedHeads(problem, sequence));
  run.head_units = static_cast<int32_t>(problem.num_q_heads) / run.pack;
  const int64_t rows = int64_t{run.len_q} * run.pack;
  run.tile_rows = static_cast<int32_t>(std::min<int64_t>(
      max_tile_rows, RoundUp(std::max<int64_t>(rows, 1), tile.warp_rows)));
  const KeySplit split = SplitKeys(problem, sequence, tile.keys);
  run.splits = split.splits;
  run.split_chunk = split.chunk;
  return run;
}

int64_t RowsOf(const Run& run) {
  return int64_t{run.batch_count} * run.head_units * run.pack * run.len_q;
}

int64_t TilesOf(const Run& run) {
  return CeilDiv(int64_t{run.len_q} * run.pack, run.tile_rows);
}

// Keys that m-tile `m` of a run goes through, about.
int64_t KeysOf(const Run& run, int64_t m) {
  const int64_t first = m * run.tile_rows / run.pack;
  const int64_t last = std::min<int64_t>(
      run.len_q - 1, ((m + 1) * run.tile_rows - 1) / run.pack);
  const int64_t begin = std::max<int64_t>(0, first + run.lo_shift);
  const int64_t end = std::min<int64_t>(run.len_kv, last + run.hi_shift);
  const int64_t keys = std::max<int64_t>(0, end - begin);
  return run.splits > 1 ? std::min<int64_t>(keys, run.split_chunk) : keys;
}

int64_t SectionOf(const AttentionProblem& problem, const Run& run) {
  const int64_t kv_bytes = std::max<int64_t>(
      1, 2 * int64_t{run.len_kv} * (problem.head_dim + problem.head_dim_v));
  const int64_t units_per_kv_head = problem.group_size() / run.pack;
  const int64_t heads = std::max<int64_t>(1, kSectionBytes / kv_bytes);
  return std::min(int64_t{run.batch_count} * run.head_units,
                  heads * units_per_kv_head);
}

struct Piece {
  Segment segment;
  int64_t keys;  // of its longest tile
  int64_t tiles;
};

// The run's m-tiles in at most `max_pieces` pieces.
void AddPieces(const AttentionProblem& problem, const Run& run, int32_t index,
               int64_t max_pieces, std::vector<Piece>* pieces) {
  const int64_t m_tiles = TilesOf(run);
  const int64_t units = int64_t{run.batch_count} * run.head_units;
  if (m_tiles == 0 || units == 0) return;
  const int64_t step = CeilDiv(m_tiles, max_pieces);
  for (int64_t m = 0; m < m_tiles; m += step) {
    Piece piece = {};
    const int64_t count = std::min(step, m_tiles - m);
    piece.segment.run = index;
    piece.segment.m_begin = static_cast<int32_t>(m);
    piece.segment.m_count = static_cast<int32_t>(count);
    piece.segment.section = static_cast<int32_t>(SectionOf(problem, run));
    piece.keys = std::max(KeysOf(run, m), KeysOf(run, m + count - 1));
    piece.tiles = count * units * run.splits;
    pieces->push_back(piece);
  }
}

// Longest tiles first, so that the last ones to start are short.
absl::Status MakeSegments(std::span<const AttentionProblem* const> problems,
                          LaunchPlan* plan) {
  std::vector<Piece> pieces;
  const auto num_runs = static_cast<int64_t>(plan->runs.size());
  const int64_t max_pieces =
      num_runs <= 1 ? 1 : std::max<int64_t>(1, kMaxSegments / num_runs);
  for (int64_t i = 0; i < num_runs; ++i) {
    const Run& run = plan->runs[i];
    AddPieces(*problems[plan->members[run.problem]], run,
              static_cast<int32_t>(i), max_pieces, &pieces);
  }
  std::stable_sort(
      pieces.begin(), pieces.end(),
      [](const Piece& a, const Piece& b) { return a.keys > b.keys; });
  for (Piece& piece : pieces) {
    piece.segment.first_tile = static_cast<uint32_t>(plan->num_tiles);
    plan->segments.push_back(piece.segment);
    plan->num_tiles += piece.tiles;
    if (plan->num_tiles > kMaxTiles) {
      return absl::InvalidArgumentError(
          absl::StrCat("sm80: a launch of more than ", kMaxTiles, " tiles"));
    }
  }
  return absl::OkStatus();
}

// Places rows and partials; split runs come first.
void PlaceRuns(std::span<const AttentionProblem* const> problems,
               LaunchPlan* plan) {
  std::stable_partition(plan->runs.begin(), plan->runs.end(),
                        [](const Run& run) { return run.splits > 1; });
  plan->member_partial_floats.assign(plan->members.size(), 0);
  for (Run& run : plan->runs) {
    const int64_t rows = RowsOf(run);
    run.first_row = plan->num_rows;
    plan->num_rows += rows;
    if (run.splits == 1) continue;
    plan->num_split_rows += rows;
    const int64_t pairs = rows * run.splits;
    run.partial_ml = plan->partial_floats;
    run.partial_o = run.partial_ml + 2 * pairs;
    const int64_t head_dim_v = problems[plan->members[run.problem]]->head_dim_v;
    const int64_t floats = pairs * (2 + head_dim_v);
    plan->partial_floats += floats;
    plan->member_partial_floats[run.problem] += floats;
  }
}

void AddMember(const AttentionProblem& problem, size_t index,
               const TileShape& tile, int max_tile_rows, LaunchPlan* plan) {
  const auto member = static_cast<int32_t>(plan->members.size());
  plan->members.push_back(index);
  plan->copy_bytes.push_back(CopyBytes(problem));
  plan->num_floats += static_cast<int64_t>(problem.sinks.size());
  if (!problem.alibi_slopes.empty()) {
    const int64_t rows = problem.alibi_batch_stride == 0 ? 1 : problem.batch;
    plan->num_floats += rows * problem.num_q_heads;
  }
  if (problem.batch == 0 || problem.num_q_heads == 0) return;
  const bool alike = problem.sequences.size() == 1;
  const int64_t count = alike ? problem.batch : 1;
  for (int64_t b = 0; b < problem.batch; b += count) {
    if (problem.sequence(b).len_q == 0) continue;
    Run run = MakeRun(problem, b, count, tile, max_tile_rows);
    run.problem = member;
    plan->runs.push_back(run);
  }
}

void LayOutBlob(LaunchPlan* plan) {
  plan->runs_offset = RoundUp(
      static_cast<int64_t>(plan->members.size() * sizeof(ProblemRecord)), 16);
  plan->segments_offset = RoundUp(
      plan->runs_offset + static_cast<int64_t>(plan->runs.size() * sizeof(Run)),
      16);
  plan->floats_offset =
      RoundUp(plan->segments_offset +
                  static_cast<int64_t>(plan->segments.size() * sizeof(Segment)),
              16);
  plan->blob_bytes = RoundUp(plan->floats_offset + 4 * plan->num_floats, 16);
}

}  // namespace

int TileRowsThatFit(const TileShape& tile, int64_t optin) {
  for (int rows = tile.rows(); rows >= tile.warp_rows; rows /= 2) {
    if (FitShared(tile, rows, optin).ring_slots > 0) return rows;
  }
  return 0;
}

KernelKey KeyOf(const AttentionProblem& problem) {
  // Outside, scale * log2(e) or its products with scores may overflow or
  // vanish before the maximum is taken; <= 0 must be multiplied first.
  const bool tame_scale =
      problem.softmax_scale >= 1e-30f && problem.softmax_scale <= 1e30f;
  KernelKey key;
  key.dtype = problem.dtype;
  key.head_class = HeadClass(problem.head_dim, problem.head_dim_v);
  key.general = problem.mask.kind != MaskKind::kNone ||
                !problem.alibi_slopes.empty() || problem.softcap > 0 ||
                !tame_scale || CopyBytes(problem) != 16 ||
                problem.head_dim % 8 != 0 || problem.head_dim_v % 8 != 0;
  return key;
}

int64_t PackedHeads(const AttentionProblem& problem,
                    const SequenceBounds& sequence) {
  return sequence.whole_len_q < kRowsPerTile ? problem.group_size() : 1;
}

KeySplit SplitKeys(const AttentionProblem& problem,
                   const SequenceBounds& sequence, int keys_per_tile) {
  const int64_t pack = PackedHeads(problem, sequence);
  const int64_t rows = sequence.whole_len_q * pack;
  const int64_t tiles =
      CeilDiv(rows, kRowsPerTile) * (problem.whole_num_q_heads / pack);
  if (tiles <= 0 || tiles >= kEnoughTiles) return {};
  const int64_t min_chunk = rows <= kThinRows ? kMinThinChunk : kMinChunk;
  const int64_t splits =
      std::min(CeilDiv(kWantedTiles, tiles), sequence.len_kv / min_chunk);
  if (splits <= 1) return {};
  const int64_t chunk =
      RoundUp(CeilDiv(sequence.len_kv, splits), keys_per_tile);
  return {static_cast<int32_t>(CeilDiv(sequence.len_kv, chunk)),
          static_cast<int32_t>(chunk)};
}

absl::StatusOr<std::vector<LaunchPlan>> PlanLaunches(
    const DeviceProperties& device,
    std::span<const AttentionProblem* const> problems) {
  std::vector<LaunchPlan> plans;
  for (size_t i = 0; i < problems.size(); ++i) {
    const KernelKey key = KeyOf(*problems[i]);
    auto plan = std::find_if(plans.begin(), plans.end(),
                             [&](const auto& p) { return p.key == key; });
    if (plan == plans.end()) {
      plans.emplace_back().key = key;
      plan = plans.end() - 1;
    }
    const TileShape& tile = Tile(key.head_class, key.general);
    AddMember(*problems[i], i, tile,
              TileRowsThatFit(tile, device.shared_memory_per_block_optin),
              &*plan);
  }
  for (LaunchPlan& plan : plans) {
    const TileShape& tile = Tile(plan.key.head_class, plan.key.general);
    int q_rows = tile.warp_rows;
    for (const Run& run : plan.runs) q_rows = std::max(q_rows, run.tile_rows);
    plan.shared = FitShared(tile, q_rows, device.shared_memory_per_block_optin);
    PlaceRuns(problems, &plan);
    RETURN_IF_ERROR(MakeSegments(problems, &plan));
    LayOutBlob(&plan);
  }
  return plans;
}

}  // namespace attendant::kernels::sm80
