// Which sequences the decode kernels take, how their keys are cut into chunks,
// and the launches that serve them. Everything but Launch is host-only.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/attention.h"
#include "kernels/problem.h"
#include "kernels/sm90/decode_params.h"
#include "kernels/sm90/decode_table.h"

namespace attendant::kernels::sm90 {

// True for few query rows: the decode kernels serve the sequence. A function of
// the whole request alone.
bool IsThin(const AttentionProblem& problem, const SequenceBounds& sequence);

// Packed rows of a tile.
int64_t RowsOfTile(DecodeWidth width);

// Keys of a chunk: a multiple of the class's key block, a function of the whole
// request and the sequence's own length alone. A request that is alone then
// fills the card; many fold several chunks in one block.
int64_t ChunkKeys(const AttentionProblem& problem,
                  const SequenceBounds& sequence);

// True if scores need more than a positive factor: softcap, ALiBi, scale <= 0.
bool ModifiesScores(const AttentionProblem& problem);

// Sequences of one class, width and type: one launch.
struct DecodeGroup {
  DecodeClass decode_class = DecodeClass::k64;
  DecodeWidth width = DecodeWidth::kFew;
  DataType dtype = DataType::kFloat16;
  std::vector<DecodeSequence> sequences;
  int64_t num_items = 0;
  int64_t num_strands = 0;
  int64_t num_tails = 0;  // few rows, see DecodeTails
  int64_t num_slots = 0;
  int64_t num_blocks = 0;  // that share the items
  // More rows: some strand has several items, some item several chunks, or
  // several quads of them.
  bool combines = false;
  bool keeps_chunks = false;
  bool keeps_quads = false;
  int combine_blocks = 0;  // of a strand
  // More rows: a cluster of so many blocks does a strand's items, one each, and
  // merges them, if the device has room for all at once; 1 = none do.
  int cluster_size = 1;
  // More rows: there is a block for every item, so that these can merge.
  bool merges_by_arrival = false;
  bool modifies_scores = false;  // of some sequence, see ModifiesScores

  int64_t slot_bytes() const;
  int64_t scratch_bytes() const;  // of all blocks
};

// Groups the thin sequences of `problems`; record.problem is the index there.
std::vector<DecodeGroup> GroupThinSequences(
    std::span<const AttentionProblem* const> problems, int num_sms);

// The decode part of an sm90 plan.
class DecodePlan {
 public:
  // Problems without thin sequences are passed over. INVALID_ARGUMENT if a
  // launch would have more than 2^31 - 1 items.
  static absl::StatusOr<DecodePlan> Create(
      std::span<const AttentionProblem* const> problems, int num_sms);

  bool empty() const { return groups_.empty(); }
  int64_t workspace_bytes() const { return workspace_bytes_; }
  // Zero before and after each launch.
  int64_t control_bytes() const { return control_bytes_; }
  int64_t descriptor_bytes() const { return descriptor_bytes_; }
  int64_t workspace_bytes_of(size_t index) const {
    return workspace_of_problem_[index];
  }

  // `context` is the decode part's own: its pointers start at its share.
  // `repair_flag`: device memory, set to 1 if O holds what is not finite.
  // `scrubs`: the repair's launch, see repair.h.
  absl::Status Launch(const LaunchContext& context, int32_t* repair_flag,
                      bool scrubs) const;

 private:
  // Byte offsets in the descriptors; meaningful if descriptor_bytes_ > 0.
  struct Layout {
    int64_t maps = 0;
    int64_t problems = 0;
    int64_t sequences = 0;  // group after group
    int64_t floats = 0;     // slopes, then sinks, problem after problem
  };

  DecodeProblem ProblemOf(size_t index, const float* device_floats,
                          int64_t* floats_used) const;
  absl::Status EncodeMaps(size_t index, CUtensorMap* maps) const;
  absl::Status WriteDescriptors(const LaunchContext& context) const;
  absl::Status LaunchGroup(const DecodeGroup& group, DecodeParams params,
                           cudaStream_t stream) const;
  bool FitsParameters() const;

  std::vector<const AttentionProblem*> problems_;
  std::vector<DecodeGroup> groups_;
  std::vector<int64_t> workspace_of_problem_;
  Layout layout_;
  int64_t workspace_bytes_ = 0;
  int64_t control_bytes_ = 0;
  int num_sms_ = 1;
  int64_t descriptor_bytes_ = 0;
};

}  // namespace attendant::kernels::sm90
