// A plan of sm90 launches: one per (tile class, dtype, plain or score-mod).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/sm90/decode_plan.h"
#include "kernels/sm90/kernel_params.h"
#include "kernels/sm90/launchers.h"
#include "kernels/sm90/tile_table.h"

namespace attendant::kernels::sm90 {

class Sm90Plan : public KernelPlan {
 public:
  static absl::StatusOr<std::unique_ptr<KernelPlan>> Create(
      const DeviceProperties& device,
      std::span<const AttentionProblem* const> problems);

  int64_t workspace_bytes() const override { return decode_.workspace_bytes(); }
  int64_t workspace_bytes_of(size_t index) const override {
    return decode_.workspace_bytes_of(index);
  }
  // The repair flag, the counters of each prefill launch, then decode's.
  int64_t control_bytes() const override;
  int64_t descriptor_bytes() const override {
    return descriptor_bytes_ + decode_.descriptor_bytes();
  }
  int64_t repair_flag_offset() const override { return 0; }
  absl::Status Launch(const LaunchContext& context) const override;
  absl::Status Repair(const LaunchContext& context) const override;

 private:
  struct Key {
    TileClass tile_class = TileClass::k64;
    DataType dtype = DataType::kBFloat16;
    bool score_mod = false;
    bool operator==(const Key&) const = default;
  };
  // Problems that share a launch. Offsets are into the descriptors.
  struct Group {
    Key key;
    std::vector<const AttentionProblem*> problems;
    std::vector<SequenceRecord> sequences;
    int32_t num_tiles = 0;
    bool in_parameters = false;  // one sequence record, no device arrays
    int64_t maps_offset = 0;
    int64_t problems_offset = 0;
    int64_t sequences_offset = 0;
    std::vector<int64_t> slopes_offsets,
        sinks_offsets;  // by problem; -1 = none
  };

  static Key KeyOf(const AttentionProblem& problem);
  void AddProblem(const AttentionProblem& problem);
  absl::Status Finish(Group& group);
  void PlaceDescriptors(Group& group);
  ProblemRecord RecordIn(const Group& group, size_t index,
                         const LaunchContext& context) const;
  absl::Status EncodeMaps(const Group& group, size_t index,
                          CUtensorMap* maps) const;
  // Writes the host descriptors of all groups that need them (or of all) and
  // enqueues their copy.
  absl::Status UploadDescriptors(const LaunchContext& context,
                                 bool for_repair) const;
  // `scrubs`: step 1 of the repair, see repair.h.
  absl::Status LaunchAll(const LaunchContext& context, bool scrubs) const;
  absl::StatusOr<PrefillParams> ParamsOf(size_t group_index,
                                         const LaunchContext& context) const;

  int64_t PrefillControlBytes() const;
  LaunchContext DecodeContext(const LaunchContext& context) const;

  int num_sms_ = 1;
  DecodePlan decode_;  // thin sequences; its share lies behind prefill's
  std::vector<Group> groups_;
  int64_t descriptor_bytes_ = 0;
};

}  // namespace attendant::kernels::sm90
