#include "kernels/sm80/sm80_attention.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/sm80/launch_plan.h"
#include "kernels/sm80/launchers.h"

namespace attendant::kernels::sm80 {
namespace {

constexpr int64_t kAlignment = 256;

int64_t AlignUp(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

ForwardLauncher* LauncherOf(const KernelKey& key) {
  if (key.dtype == DataType::kBFloat16) {
    return key.general ? LaunchForwardBf16General : LaunchForwardBf16Plain;
  }
  return key.general ? LaunchForwardFp16General : LaunchForwardFp16Plain;
}

class Sm80Plan : public KernelPlan {
 public:
  Sm80Plan(std::vector<const AttentionProblem*> problems,
           std::vector<LaunchPlan> launches)
      : problems_(std::move(problems)), workspace_of_(problems_.size()) {
    for (LaunchPlan& launch : launches) {
      for (size_t i = 0; i < launch.members.size(); ++i) {
        workspace_of_[launch.members[i]] = 4 * launch.member_partial_floats[i];
      }
      if (launch.num_tiles == 0) continue;
      places_.push_back({workspace_bytes_, descriptor_bytes_});
      workspace_bytes_ += AlignUp(4 * launch.partial_floats);
      if (!launch.blob_is_inline()) {
        descriptor_bytes_ += AlignUp(launch.blob_bytes);
      }
      launches_.push_back(std::move(launch));
    }
  }

  int64_t workspace_bytes() const override { return workspace_bytes_; }
  int64_t control_bytes() const override { return kAlignment; }
  int64_t descriptor_bytes() const override { return descriptor_bytes_; }
  int64_t workspace_bytes_of(size_t index) const override {
    return workspace_of_[index];
  }
  int64_t repair_flag_offset() const override { return 0; }

  absl::Status Launch(const LaunchContext& context) const override {
    auto* stream = static_cast<cudaStream_t>(context.stream);
    RETURN_IF_ERROR(WriteDescriptors(context));
    for (size_t i = 0; i < launches_.size(); ++i) {
      const LaunchPlan& launch = launches_[i];
      LaunchArgs args = {};
      RETURN_IF_ERROR(MakeArgs(i, context, &args));
      RETURN_IF_ERROR(
          LauncherOf(launch.key)(launch.key.head_class, launch.num_tiles,
                                 launch.shared.bytes, args, stream));
      if (launch.num_split_rows > 0) {
        args.num_rows = launch.num_split_rows;
        RETURN_IF_ERROR(LaunchCombine(launch.key.dtype, args, stream));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Repair(const LaunchContext& context) const override {
    auto* stream = static_cast<cudaStream_t>(context.stream);
    RETURN_IF_ERROR(WriteDescriptors(context));
    for (size_t i = 0; i < launches_.size(); ++i) {
      LaunchArgs args = {};
      RETURN_IF_ERROR(MakeArgs(i, context, &args));
      args.num_rows = launches_[i].num_rows;
      RETURN_IF_ERROR(LaunchRepair(launches_[i].key.dtype, args, stream));
    }
    RETURN_IF_CUDA_ERROR(
        cudaMemsetAsync(context.control, 0, sizeof(int32_t), stream));
    return absl::OkStatus();
  }

 private:
  struct Place {
    int64_t workspace;
    int64_t descriptors;
  };

  // Fills and sends the blobs that don't travel in kernel parameters.
  absl::Status WriteDescriptors(const LaunchContext& context) const {
    if (descriptor_bytes_ == 0) return absl::OkStatus();
    auto* host = static_cast<std::byte*>(context.host_descriptors);
    for (size_t i = 0; i < launches_.size(); ++i) {
      if (launches_[i].blob_is_inline()) continue;
      RETURN_IF_ERROR(
          WriteBlob(launches_[i], problems_, host + places_[i].descriptors));
    }
    RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(
        context.device_descriptors, host,
        static_cast<size_t>(descriptor_bytes_), cudaMemcpyHostToDevice,
        static_cast<cudaStream_t>(context.stream)));
    return absl::OkStatus();
  }

  absl::Status MakeArgs(size_t index, const LaunchContext& context,
                        LaunchArgs* args) const {
    const LaunchPlan& launch = launches_[index];
    args->partials = reinterpret_cast<float*>(
        static_cast<std::byte*>(context.workspace) + places_[index].workspace);
    args->repair_flag = static_cast<int32_t*>(context.control);
    args->num_segments = static_cast<uint32_t>(launch.segments.size());
    args->num_runs = static_cast<uint32_t>(launch.runs.size());
    args->runs_offset = static_cast<uint32_t>(launch.runs_offset);
    args->segments_offset = static_cast<uint32_t>(launch.segments_offset);
    args->floats_offset = static_cast<uint32_t>(launch.floats_offset);
    args->q_rows = launch.shared.q_rows;
    args->ring_slots = launch.shared.ring_slots;
    args->natural_units = launch.key.general;
    args->inline_blob = launch.blob_is_inline();
    if (args->inline_blob) {
      RETURN_IF_ERROR(WriteBlob(launch, problems_, args->blob_inline));
      if (launch.members.size() == 1 && launch.segments.size() == 1) {
        args->single = true;
        args->segment = launch.segments[0];
        args->run = launch.runs[0];
        std::memcpy(&args->problem, args->blob_inline, sizeof(args->problem));
      }
      return absl::OkStatus();
    }
    args->blob = static_cast<const std::byte*>(context.device_descriptors) +
                 places_[index].descriptors;
    return absl::OkStatus();
  }

  const std::vector<const AttentionProblem*> problems_;
  std::vector<LaunchPlan> launches_;  // those with tiles
  std::vector<Place> places_;
  std::vector<int64_t> workspace_of_;
  int64_t workspace_bytes_ = 0;
  int64_t descriptor_bytes_ = 0;
};

}  // namespace

std::string WhyNot(const DeviceProperties& device,
                   const AttentionProblem& problem) {
  if (problem.head_dim < 1 || problem.head_dim_v < 1) {
    return "serves head_dim from 1";
  }
  if (problem.output_dtype != problem.dtype &&
      problem.output_dtype != DataType::kFloat32) {
    return "writes the input's type or fp32";
  }
  for (const SequenceBounds& sequence : problem.sequences) {
    const int64_t rows = sequence.len_q * PackedHeads(problem, sequence);
    if (std::max(rows, sequence.len_kv) > kMaxSequence) {
      return absl::StrCat("serves sequences of up to ", kMaxSequence);
    }
  }
  const KernelKey key = KeyOf(problem);
  const TileShape& tile = Tile(key.head_class, key.general);
  if (TileRowsThatFit(tile, device.shared_memory_per_block_optin) == 0) {
    return absl::StrCat("needs more than the device's ",
                        device.shared_memory_per_block_optin,
                        " bytes of shared memory per block");
  }
  return {};
}

absl::StatusOr<std::unique_ptr<KernelPlan>> Plan(
    const DeviceProperties& device,
    std::span<const AttentionProblem* const> problems) {
  ASSIGN_OR_RETURN(std::vector<LaunchPlan> launches,
                   PlanLaunches(device, problems));
  return std::make_unique<Sm80Plan>(
      std::vector<const AttentionProblem*>(problems.begin(), problems.end()),
      std::move(launches));
}

}  // namespace attendant::kernels::sm80
