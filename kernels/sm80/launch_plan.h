// Host-only planning: from problems to launches, their runs, segments, splits
// and memory. Reads no pointers (they may not be known yet), needs no GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/attention.h"
#include "kernels/problem.h"
#include "kernels/sm80/descriptors.h"
#include "kernels/sm80/tile_table.h"

namespace attendant::kernels::sm80 {

// Which instance of the forward kernel serves a problem.
struct KernelKey {
  DataType dtype = DataType::kBFloat16;
  int head_class = 0;
  bool general = false;
  bool operator==(const KernelKey&) const = default;
};
KernelKey KeyOf(const AttentionProblem& problem);

// The widest copy, 16, 8, 4 or 2 bytes, that the alignment of q, k and v (where
// known) and of their strides allows.
int CopyBytes(const AttentionProblem& problem);

// How the keys of a sequence are split. Depends on the request alone: its head
// counts, a sequence's own whole_len_q and len_kv; never on batch, neighbours,
// cuts or the device.
struct KeySplit {
  int32_t splits = 1;
  int32_t chunk = 0;  // keys, a multiple of the key tile; 0 if splits is 1
};
KeySplit SplitKeys(const AttentionProblem& problem,
                   const SequenceBounds& sequence, int keys_per_tile);

// Query heads whose rows share a tile (a GQA group), or 1. Likewise a function
// of the request alone.
int64_t PackedHeads(const AttentionProblem& problem,
                    const SequenceBounds& sequence);

// One launch of one kernel instance over its problems.
struct LaunchPlan {
  KernelKey key;
  std::vector<size_t> members;  // indices of the planner's problems
  std::vector<int> copy_bytes;  // of each member, as planned
  std::vector<Run> runs;        // split runs first; run.problem is a member's
  std::vector<Segment> segments;
  SharedLayout shared;
  int64_t num_tiles = 0;
  int64_t num_split_rows = 0;  // output rows of split runs
  int64_t num_rows = 0;        // of all runs
  int64_t partial_floats = 0;
  std::vector<int64_t> member_partial_floats;
  int64_t num_floats = 0;  // slopes and sinks
  // Blob layout (descriptors.h), bytes.
  int64_t runs_offset = 0, segments_offset = 0, floats_offset = 0;
  int64_t blob_bytes = 0;

  bool blob_is_inline() const { return blob_bytes <= kInlineBlobBytes; }
};

// Launches for `problems`, one for each kernel instance among them.
// INVALID_ARGUMENT if a launch would have more than kMaxTiles tiles.
absl::StatusOr<std::vector<LaunchPlan>> PlanLaunches(
    const DeviceProperties& device,
    std::span<const AttentionProblem* const> problems);

// Rows of the Q tile that fit the device, 0 if none do.
int TileRowsThatFit(const TileShape& tile, int64_t optin);

// Writes the blob of `plan` to `out` (plan.blob_bytes, 16-byte aligned), now
// that pointers are known. INTERNAL if they are aligned worse than planned.
absl::Status WriteBlob(const LaunchPlan& plan,
                       std::span<const AttentionProblem* const> problems,
                       std::byte* out);

}  // namespace attendant::kernels::sm80
