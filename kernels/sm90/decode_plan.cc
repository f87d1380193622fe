#include "kernels/sm90/decode_plan.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/sm90/decode_launchers.h"
#include "kernels/sm90/repair.h"
#include "kernels/sm90/tensor_map.h"

namespace attendant::kernels::sm90 {
namespace {

constexpr float kLog2E = 1.4426950408889634f;
constexpr int64_t kBlockAlignment = 256;

int64_t AlignUp(int64_t bytes) {
  return (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
}

template <typename T>
T* At(void* base, int64_t offset) {
  return reinterpret_cast<T*>(static_cast<std::byte*>(base) + offset);
}

int64_t RowsKv(const AttentionProblem& problem) {
  int64_t rows = 0;
  for (const SequenceBounds& sequence : problem.sequences) {
    rows = std::max(rows, sequence.kv_begin + sequence.len_kv);
  }
  return rows;
}

int64_t NumFloats(const AttentionProblem& problem) {
  return static_cast<int64_t>(problem.alibi_slopes.size() +
                              problem.sinks.size());
}

// Counters of the launch, then the arrivals of its strands.
int64_t ControlBytes(const DecodeGroup& group) {
  const bool is_few = group.width == DecodeWidth::kFew && group.num_slots > 0;
  const int64_t words = is_few                    ? 1
                        : group.merges_by_arrival ? kArrivalWords
                                                  : 0;
  const int64_t arrivals = words * (group.num_strands + group.num_tails);
  return sizeof(LaunchCounters) +
         (arrivals * static_cast<int64_t>(sizeof(uint32_t)) + 15) / 16 * 16;
}

bool OutIsVectorized(const AttentionProblem& problem) {
  const auto aligned = [](int64_t elements) { return elements % 8 == 0; };
  const uintptr_t bytes = problem.output_dtype == DataType::kFloat32 ? 32 : 16;
  return reinterpret_cast<uintptr_t>(problem.out.data) % bytes == 0 &&
         aligned(problem.head_dim_v) && aligned(problem.out.row_stride) &&
         aligned(problem.out.head_stride) && aligned(problem.out.batch_stride);
}

bool QIsVectorized(const AttentionProblem& problem) {
  const auto aligned = [](int64_t elements) { return elements % 8 == 0; };
  return reinterpret_cast<uintptr_t>(problem.q.data) % 16 == 0 &&
         aligned(problem.head_dim) && aligned(problem.q.row_stride) &&
         aligned(problem.q.head_stride) && aligned(problem.q.batch_stride);
}

// Heads in the place of rows and rows in the place of heads: a box's rows then
// lie as packed rows do, all heads of a group for each position.
InputTensor QByHeads(const AttentionProblem& problem) {
  InputTensor q = problem.q;
  std::swap(q.row_stride, q.head_stride);
  return q;
}
MapExtents QExtents(const AttentionProblem& problem) {
  int64_t rows = 0;
  for (const SequenceBounds& sequence : problem.sequences) {
    rows = std::max(rows, sequence.q_begin + sequence.len_q);
  }
  return {problem.head_dim, problem.num_q_heads, rows, problem.batch};
}

// Whether 64 packed rows are a box of a map.
bool QHasMap(const AttentionProblem& problem) {
  const int64_t group = problem.group_size();
  return QIsVectorized(problem) && group > 0 &&
         DecodeProblem::kQBoxRows % group == 0 && problem.q.head_stride != 0 &&
         problem.q.row_stride != 0 &&
         WhyNoMap("q", QByHeads(problem), QExtents(problem)).empty();
}

DecodeLauncher LauncherOf(const DecodeGroup& group) {
  const bool bf16 = group.dtype == DataType::kBFloat16;
  switch (group.decode_class) {
    case DecodeClass::k64:
      return bf16 ? LaunchDecode64Bf16 : LaunchDecode64Fp16;
    case DecodeClass::k128:
      return bf16 ? LaunchDecode128Bf16 : LaunchDecode128Fp16;
    case DecodeClass::k256:
      return bf16 ? LaunchDecode256Bf16 : LaunchDecode256Fp16;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<DecodePlan> DecodePlan::Create(
    std::span<const AttentionProblem* const> problems, int num_sms) {
  DecodePlan plan;
  plan.num_sms_ = num_sms;
  plan.groups_ = GroupThinSequences(problems, num_sms);
  plan.problems_.assign(problems.begin(), problems.end());
  plan.workspace_of_problem_.resize(problems.size());
  int64_t sequences = 0;
  for (const DecodeGroup& group : plan.groups_) {
    if (group.num_items > std::numeric_limits<int32_t>::max() ||
        group.num_slots > std::numeric_limits<int32_t>::max()) {
      return absl::InvalidArgumentError(
          absl::StrCat("batch * heads gives ", group.num_items,
                       " work items, must be at most 2147483647"));
    }
    for (const DecodeSequence& record : group.sequences) {
      plan.workspace_of_problem_[record.problem] +=
          record.num_slots * group.slot_bytes();
    }
    sequences += static_cast<int64_t>(group.sequences.size());
    plan.workspace_bytes_ += AlignUp(group.num_slots * group.slot_bytes()) +
                             AlignUp(group.scratch_bytes());
    plan.control_bytes_ += ControlBytes(group);
  }
  if (plan.FitsParameters()) return plan;
  int64_t floats = 0;
  for (const AttentionProblem* problem : problems)
    floats += NumFloats(*problem);
  const int64_t count = static_cast<int64_t>(problems.size());
  plan.layout_.problems =
      AlignUp(count * kDecodeMapsPerProblem * sizeof(CUtensorMap));
  plan.layout_.sequences =
      plan.layout_.problems + AlignUp(count * sizeof(DecodeProblem));
  plan.layout_.floats =
      plan.layout_.sequences + AlignUp(sequences * sizeof(DecodeSequence));
  plan.descriptor_bytes_ =
      plan.layout_.floats + AlignUp(floats * sizeof(float));
  return plan;
}

bool DecodePlan::FitsParameters() const {
  if (groups_.empty()) return true;
  return groups_.size() == 1 && groups_[0].sequences.size() == 1 &&
         NumFloats(*problems_[groups_[0].sequences[0].problem]) == 0;
}

// `device_floats`: where slopes and sinks lie on the device; advances by what
// this problem has.
DecodeProblem DecodePlan::ProblemOf(size_t index, const float* device_floats,
                                    int64_t* floats_used) const {
  const AttentionProblem& problem = *problems_[index];
  const int64_t rows = RowsKv(problem);
  DecodeProblem record = {};
  record.q = problem.q.data;
  record.out = problem.out.data;
  record.lse = problem.lse;
  if (!problem.alibi_slopes.empty()) {
    record.slopes = device_floats + *floats_used;
    *floats_used += static_cast<int64_t>(problem.alibi_slopes.size());
  }
  if (!problem.sinks.empty()) {
    record.sinks = device_floats + *floats_used;
    *floats_used += static_cast<int64_t>(problem.sinks.size());
  }
  record.q_batch_stride = problem.q.batch_stride;
  record.q_row_stride = problem.q.row_stride;
  record.q_head_stride = problem.q.head_stride;
  record.out_batch_stride = problem.out.batch_stride;
  record.out_row_stride = problem.out.row_stride;
  record.out_head_stride = problem.out.head_stride;
  record.lse_batch_stride = problem.lse_batch_stride;
  record.lse_head_stride = problem.lse_head_stride;
  record.slopes_batch_stride = problem.alibi_batch_stride;
  record.k = FactorsOf(
      problem.k, {problem.head_dim, rows, problem.num_kv_heads, problem.batch});
  record.v = FactorsOf(problem.v, {problem.head_dim_v, rows,
                                   problem.num_kv_heads, problem.batch});
  record.q_by_heads = FactorsOf(QByHeads(problem), QExtents(problem));
  record.num_kv_heads = static_cast<int32_t>(problem.num_kv_heads);
  record.group_size = static_cast<int32_t>(problem.group_size());
  record.head_dim = static_cast<int32_t>(problem.head_dim);
  record.head_dim_v = static_cast<int32_t>(problem.head_dim_v);
  record.rows_kv = static_cast<int32_t>(rows);
  record.scale_log2 = problem.softmax_scale * kLog2E;
  record.softcap = problem.softcap;
  record.out_is_fp32 = problem.output_dtype == DataType::kFloat32;
  record.q_is_vectorized = QIsVectorized(problem);
  record.q_has_map = QHasMap(problem);
  record.out_is_vectorized = OutIsVectorized(problem);
  record.modifies_scores = ModifiesScores(problem);
  return record;
}

absl::Status DecodePlan::EncodeMaps(size_t index, CUtensorMap* maps) const {
  const AttentionProblem& problem = *problems_[index];
  std::memset(static_cast<void*>(maps), 0,
              kDecodeMapsPerProblem * sizeof(CUtensorMap));
  if (QHasMap(problem)) {
    const int group = static_cast<int>(problem.group_size());
    RETURN_IF_ERROR(EncodeMap(QByHeads(problem), problem.dtype,
                              QExtents(problem), group, L2Fetch::kTwoLines,
                              maps + kDecodeMapQ,
                              DecodeProblem::kQBoxRows / group));
  }
  const int64_t rows = RowsKv(problem);
  if (rows == 0) return absl::OkStatus();  // perhaps nowhere to copy from
  const int box_rows =
      kDecodeClasses[static_cast<int>(
                         DecodeClassOf(problem.head_dim, problem.head_dim_v))]
          .box_rows;
  RETURN_IF_ERROR(
      EncodeMap(problem.k, problem.dtype,
                {problem.head_dim, rows, problem.num_kv_heads, problem.batch},
                box_rows, L2Fetch::kLine, maps + kDecodeMapK));
  return EncodeMap(
      problem.v, problem.dtype,
      {problem.head_dim_v, rows, problem.num_kv_heads, problem.batch}, box_rows,
      L2Fetch::kLine, maps + kDecodeMapV);
}

absl::Status DecodePlan::WriteDescriptors(const LaunchContext& context) const {
  CUtensorMap* maps = At<CUtensorMap>(context.host_descriptors, layout_.maps);
  DecodeProblem* records =
      At<DecodeProblem>(context.host_descriptors, layout_.problems);
  DecodeSequence* sequences =
      At<DecodeSequence>(context.host_descriptors, layout_.sequences);
  float* floats = At<float>(context.host_descriptors, layout_.floats);
  const float* device_floats =
      At<float>(context.device_descriptors, layout_.floats);
  int64_t floats_used = 0;
  for (size_t i = 0; i < problems_.size(); ++i) {
    const AttentionProblem& problem = *problems_[i];
    float* end = std::copy(problem.alibi_slopes.begin(),
                           problem.alibi_slopes.end(), floats + floats_used);
    std::copy(problem.sinks.begin(), problem.sinks.end(), end);
    records[i] = ProblemOf(i, device_floats, &floats_used);
  }
  std::vector<bool> has_maps(problems_.size());
  for (const DecodeGroup& group : groups_) {
    for (const DecodeSequence& record : group.sequences) {
      if (!has_maps[record.problem]) {
        has_maps[record.problem] = true;
        RETURN_IF_ERROR(EncodeMaps(
            record.problem, maps + record.problem * kDecodeMapsPerProblem));
      }
      *sequences++ = record;
    }
  }
  return absl::OkStatus();
}

absl::Status DecodePlan::LaunchGroup(const DecodeGroup& group,
                                     DecodeParams params,
                                     cudaStream_t stream) const {
  params.num_sequences = static_cast<int32_t>(group.sequences.size());
  params.num_items = static_cast<int32_t>(group.num_items);
  DecodeLaunch launch = {};
  launch.width = group.width;
  launch.blocks = static_cast<int>(group.num_blocks);
  launch.combine_strands =
      group.combines ? static_cast<int>(group.num_strands) : 0;
  launch.cluster_size = group.cluster_size;
  launch.merges_by_arrival = group.merges_by_arrival;
  launch.one_block_per_sm = group.num_blocks <= num_sms_;
  launch.modifies_scores = group.modifies_scores;
  launch.has_tails = group.num_tails > 0;
  params.combine_blocks = group.combine_blocks;
  launch.stream = stream;
  const cudaError_t error = LauncherOf(group)(params, launch);
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("launch of the decode kernel: ", cudaGetErrorString(error)));
}

absl::Status DecodePlan::Launch(const LaunchContext& context,
                                int32_t* repair_flag, bool scrubs) const {
  const auto stream = static_cast<cudaStream_t>(context.stream);
  DecodeParams params = {};
  params.repair_flag = repair_flag;
  if (descriptor_bytes_ > 0) {
    RETURN_IF_ERROR(WriteDescriptors(context));
    const cudaError_t error =
        cudaMemcpyAsync(context.device_descriptors, context.host_descriptors,
                        descriptor_bytes_, cudaMemcpyHostToDevice, stream);
    if (error != cudaSuccess) {
      return absl::InternalError(absl::StrCat("copy of decode descriptors: ",
                                              cudaGetErrorString(error)));
    }
    params.global_maps = At<CUtensorMap>(context.device_descriptors, 0);
    params.global_problems =
        At<DecodeProblem>(context.device_descriptors, layout_.problems);
  } else if (!groups_.empty()) {
    const DecodeSequence& record = groups_[0].sequences[0];
    int64_t no_floats = 0;
    params.sequence = record;
    params.problem = ProblemOf(record.problem, nullptr, &no_floats);
    RETURN_IF_ERROR(EncodeMaps(record.problem, params.maps));
  }
  int64_t workspace = 0;
  int64_t control = 0;
  int64_t sequences = layout_.sequences;
  for (const DecodeGroup& group : groups_) {
    params.partials = At<float>(context.workspace, workspace);
    workspace += AlignUp(group.num_slots * group.slot_bytes());
    params.scratch = At<float>(context.workspace, workspace);
    params.counters = At<LaunchCounters>(context.control, control);
    params.arrivals =
        At<uint32_t>(context.control,
                     control + static_cast<int64_t>(sizeof(LaunchCounters)));
    control += ControlBytes(group);
    if (descriptor_bytes_ > 0) {
      params.global_sequences =
          At<DecodeSequence>(context.device_descriptors, sequences);
    }
    params.scrub_exponent = scrubs ? ExponentBits(group.dtype) : 0;
    RETURN_IF_ERROR(LaunchGroup(group, params, stream));
    workspace += AlignUp(group.scratch_bytes());
    sequences +=
        static_cast<int64_t>(group.sequences.size() * sizeof(DecodeSequence));
  }
  return absl::OkStatus();
}

}  // namespace attendant::kernels::sm90
