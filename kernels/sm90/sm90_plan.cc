#include "kernels/sm90/sm90_plan.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/sm90/repair.h"
#include "kernels/sm90/tensor_map.h"
#include "kernels/sm90/work_list.h"

namespace attendant::kernels::sm90 {
namespace {

constexpr int64_t kMostTiles = int64_t{1} << 30;
constexpr int64_t kDescriptorAlignment = 128;  // a tensor map's size

struct Launchers {
  PrefillLauncher bf16, fp16;
};

// By TileClass.
constexpr Launchers kLaunchers[kNumTileClasses] = {
    {LaunchPrefill64Bf16, LaunchPrefill64Fp16},
    {LaunchPrefill128Bf16, LaunchPrefill128Fp16},
    {LaunchPrefill192x128Bf16, LaunchPrefill192x128Fp16},
    {LaunchPrefill192Bf16, LaunchPrefill192Fp16},
    {LaunchPrefill256Bf16, LaunchPrefill256Fp16},
};

const TileClassRow& RowOf(TileClass tile_class) {
  return kTileClasses[static_cast<int>(tile_class)];
}

template <typename T>
T* At(void* base, int64_t offset) {
  return reinterpret_cast<T*>(static_cast<std::byte*>(base) + offset);
}

}  // namespace

Sm90Plan::Key Sm90Plan::KeyOf(const AttentionProblem& problem) {
  return {TileClassOf(problem.head_dim, problem.head_dim_v), problem.dtype,
          NeedsScoreMod(problem)};
}

absl::StatusOr<std::unique_ptr<KernelPlan>> Sm90Plan::Create(
    const DeviceProperties& device,
    std::span<const AttentionProblem* const> problems) {
  auto plan = std::make_unique<Sm90Plan>();
  plan->num_sms_ = device.num_sms;
  for (const AttentionProblem* problem : problems) plan->AddProblem(*problem);
  for (Group& group : plan->groups_) RETURN_IF_ERROR(plan->Finish(group));
  ASSIGN_OR_RETURN(plan->decode_, DecodePlan::Create(problems, device.num_sms));
  // Decode's descriptors begin where prefill's end.
  plan->descriptor_bytes_ = (plan->descriptor_bytes_ + 255) / 256 * 256;
  return plan;
}

void Sm90Plan::AddProblem(const AttentionProblem& problem) {
  const Key key = KeyOf(problem);
  auto group = std::find_if(groups_.begin(), groups_.end(),
                            [&](const Group& g) { return g.key == key; });
  if (group == groups_.end()) {
    group = groups_.emplace(groups_.end());
    group->key = key;
  }
  const TileClassRow& row = RowOf(key.tile_class);
  const std::vector<SequenceRecord> records =
      SequencesOf(problem, static_cast<int32_t>(group->problems.size()),
                  key.score_mod ? row.tile_q_score_mod : row.tile_q);
  group->sequences.insert(group->sequences.end(), records.begin(),
                          records.end());
  group->problems.push_back(&problem);
}

absl::Status Sm90Plan::Finish(Group& group) {
  std::vector<int32_t> heads;
  bool has_arrays = false;
  for (const AttentionProblem* problem : group.problems) {
    heads.push_back(static_cast<int32_t>(problem->num_q_heads));
    has_arrays =
        has_arrays || !problem->alibi_slopes.empty() || !problem->sinks.empty();
  }
  const int64_t tiles = NumberTiles(group.sequences, heads);
  if (tiles > kMostTiles) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the launch has ", tiles, " tiles; at most ", kMostTiles, " fit"));
  }
  group.num_tiles = static_cast<int32_t>(tiles);
  group.in_parameters = group.sequences.size() == 1 && !has_arrays;
  PlaceDescriptors(group);
  return absl::OkStatus();
}

void Sm90Plan::PlaceDescriptors(Group& group) {
  const auto place = [this](int64_t bytes) {
    const int64_t offset = descriptor_bytes_;
    descriptor_bytes_ += (bytes + kDescriptorAlignment - 1) /
                         kDescriptorAlignment * kDescriptorAlignment;
    return offset;
  };
  const int64_t count = static_cast<int64_t>(group.problems.size());
  group.maps_offset = place(count * kMapsPerProblem * sizeof(CUtensorMap));
  group.problems_offset = place(count * sizeof(ProblemRecord));
  group.sequences_offset =
      place(group.sequences.size() * sizeof(SequenceRecord));
  for (const AttentionProblem* problem : group.problems) {
    group.slopes_offsets.push_back(
        problem->alibi_slopes.empty()
            ? -1
            : place(problem->alibi_slopes.size_bytes()));
    group.sinks_offsets.push_back(
        problem->sinks.empty() ? -1 : place(problem->sinks.size_bytes()));
  }
}

int64_t Sm90Plan::PrefillControlBytes() const {
  return static_cast<int64_t>((groups_.size() + 1) * sizeof(LaunchCounters));
}

int64_t Sm90Plan::control_bytes() const {
  return PrefillControlBytes() + decode_.control_bytes();
}

LaunchContext Sm90Plan::DecodeContext(const LaunchContext& context) const {
  LaunchContext decode = context;
  decode.control = At<void>(context.control, PrefillControlBytes());
  if (decode_.descriptor_bytes() > 0) {
    decode.host_descriptors =
        At<void>(context.host_descriptors, descriptor_bytes_);
    decode.device_descriptors =
        At<void>(context.device_descriptors, descriptor_bytes_);
  }
  return decode;
}

ProblemRecord Sm90Plan::RecordIn(const Group& group, size_t index,
                                 const LaunchContext& context) const {
  ProblemRecord record = RecordOf(*group.problems[index]);
  if (group.slopes_offsets[index] >= 0) {
    record.slopes =
        At<float>(context.device_descriptors, group.slopes_offsets[index]);
  }
  if (group.sinks_offsets[index] >= 0) {
    record.sinks =
        At<float>(context.device_descriptors, group.sinks_offsets[index]);
  }
  return record;
}

absl::Status Sm90Plan::EncodeMaps(const Group& group, size_t index,
                                  CUtensorMap* maps) const {
  const AttentionProblem& problem = *group.problems[index];
  const ProblemExtents extents = ExtentsOf(problem);
  const TileClassRow& row = RowOf(group.key.tile_class);
  const int tile_q = group.key.score_mod ? row.tile_q_score_mod : row.tile_q;
  RETURN_IF_ERROR(EncodeMap(problem.q, problem.dtype, extents.q, tile_q,
                            L2Fetch::kTwoLines, maps + kMapQ));
  if (extents.k.rows == 0 || problem.num_kv_heads == 0) {
    return absl::OkStatus();  // no key: K and V are never read
  }
  RETURN_IF_ERROR(EncodeMap(problem.k, problem.dtype, extents.k, row.tile_kv,
                            L2Fetch::kTwoLines, maps + kMapK));
  return EncodeMap(problem.v, problem.dtype, extents.v, row.tile_kv,
                   L2Fetch::kTwoLines, maps + kMapV);
}

absl::Status Sm90Plan::UploadDescriptors(const LaunchContext& context,
                                         bool for_repair) const {
  bool any = false;
  void* const host = context.host_descriptors;
  for (const Group& group : groups_) {
    if (group.sequences.empty()) continue;
    if (!for_repair && (group.num_tiles == 0 || group.in_parameters)) continue;
    any = true;
    for (size_t i = 0; i < group.problems.size(); ++i) {
      const AttentionProblem& problem = *group.problems[i];
      CUtensorMap* const maps =
          At<CUtensorMap>(host, group.maps_offset) + i * kMapsPerProblem;
      if (problem.num_q_heads > 0 && ExtentsOf(problem).q.rows > 0) {
        RETURN_IF_ERROR(EncodeMaps(group, i, maps));
      }
      At<ProblemRecord>(host, group.problems_offset)[i] =
          RecordIn(group, i, context);
      if (group.slopes_offsets[i] >= 0) {
        std::memcpy(At<float>(host, group.slopes_offsets[i]),
                    problem.alibi_slopes.data(),
                    problem.alibi_slopes.size_bytes());
      }
      if (group.sinks_offsets[i] >= 0) {
        std::memcpy(At<float>(host, group.sinks_offsets[i]),
                    problem.sinks.data(), problem.sinks.size_bytes());
      }
    }
    std::memcpy(At<SequenceRecord>(host, group.sequences_offset),
                group.sequences.data(),
                group.sequences.size() * sizeof(SequenceRecord));
  }
  if (!any) return absl::OkStatus();
  RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(
      context.device_descriptors, host, descriptor_bytes_,
      cudaMemcpyHostToDevice, static_cast<cudaStream_t>(context.stream)));
  return absl::OkStatus();
}

absl::StatusOr<PrefillParams> Sm90Plan::ParamsOf(
    size_t group_index, const LaunchContext& context) const {
  const Group& group = groups_[group_index];
  PrefillParams params = {};
  if (group.in_parameters) {
    RETURN_IF_ERROR(EncodeMaps(group, group.sequences[0].problem, params.maps));
    params.problem = RecordIn(group, group.sequences[0].problem, context);
    params.sequence = group.sequences[0];
  } else {
    void* const device = context.device_descriptors;
    params.global_maps = At<CUtensorMap>(device, group.maps_offset);
    params.global_problems = At<ProblemRecord>(device, group.problems_offset);
    params.global_sequences =
        At<SequenceRecord>(device, group.sequences_offset);
  }
  params.num_sequences = static_cast<int32_t>(group.sequences.size());
  params.num_tiles = group.num_tiles;
  params.repair_flag = At<int32_t>(context.control, 0);
  params.counters = At<LaunchCounters>(
      context.control,
      static_cast<int64_t>((group_index + 1) * sizeof(LaunchCounters)));
  return params;
}

absl::Status Sm90Plan::LaunchAll(const LaunchContext& context,
                                 bool scrubs) const {
  for (size_t i = 0; i < groups_.size(); ++i) {
    const Group& group = groups_[i];
    if (group.num_tiles == 0) continue;
    ASSIGN_OR_RETURN(PrefillParams params, ParamsOf(i, context));
    params.scrub_exponent = scrubs ? ExponentBits(group.key.dtype) : 0;
    const Launchers& launchers =
        kLaunchers[static_cast<int>(group.key.tile_class)];
    const PrefillLauncher launch = group.key.dtype == DataType::kBFloat16
                                       ? launchers.bf16
                                       : launchers.fp16;
    RETURN_IF_CUDA_ERROR(launch(params, group.key.score_mod,
                                std::min(num_sms_, group.num_tiles),
                                static_cast<cudaStream_t>(context.stream)));
  }
  return decode_.Launch(DecodeContext(context), At<int32_t>(context.control, 0),
                        scrubs);
}

absl::Status Sm90Plan::Launch(const LaunchContext& context) const {
  RETURN_IF_ERROR(UploadDescriptors(context, /*for_repair=*/false));
  return LaunchAll(context, /*scrubs=*/false);
}

absl::Status Sm90Plan::Repair(const LaunchContext& context) const {
  RETURN_IF_ERROR(UploadDescriptors(context, /*for_repair=*/true));
  RETURN_IF_ERROR(LaunchAll(context, /*scrubs=*/true));
  const auto stream = static_cast<cudaStream_t>(context.stream);
  for (const Group& group : groups_) {
    if (group.sequences.empty()) continue;
    for (size_t i = 0; i < group.problems.size(); ++i) {
      const RestoreParams params =
          RestoreParamsOf(*group.problems[i], RecordIn(group, i, context),
                          At<SequenceRecord>(context.device_descriptors,
                                             group.sequences_offset),
                          static_cast<int32_t>(group.sequences.size()),
                          static_cast<int32_t>(i));
      RETURN_IF_CUDA_ERROR(LaunchRestore(params, stream));
    }
  }
  RETURN_IF_CUDA_ERROR(cudaMemsetAsync(context.control, 0, 4, stream));
  return absl::OkStatus();
}

}  // namespace attendant::kernels::sm90
