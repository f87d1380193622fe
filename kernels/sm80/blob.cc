// What of a launch depends on pointers: written just before it.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/sm80/launch_plan.h"

namespace attendant::kernels::sm80 {
namespace {

// The largest power of two that divides all of it, at most 16.
int64_t Alignment(const void* data, std::initializer_list<int64_t> elements,
                  int64_t element_bytes) {
  int64_t bits = 16 | static_cast<int64_t>(reinterpret_cast<uintptr_t>(data));
  for (const int64_t count : elements) bits |= count * element_bytes;
  return bits & -bits;
}

template <typename Tensor>
int64_t AlignmentOf(const Tensor& tensor, DataType dtype) {
  return Alignment(tensor.data,
                   {tensor.batch_stride, tensor.row_stride, tensor.head_stride},
                   SizeOf(dtype));
}

DeviceMask DeviceMaskOf(const MaskView& mask) {
  switch (mask.kind) {
    case MaskKind::kNone:
      return DeviceMask::kNone;
    case MaskKind::kBoolBytes:
      return DeviceMask::kBoolBytes;
    case MaskKind::kBoolBits:
      return DeviceMask::kBoolBits;
    case MaskKind::kAdditive:
      break;
  }
  switch (mask.dtype) {
    case DataType::kFloat32:
      return DeviceMask::kFloat32;
    case DataType::kFloat16:
      return DeviceMask::kFloat16;
    case DataType::kBFloat16:
      return DeviceMask::kBFloat16;
  }
  return DeviceMask::kNone;
}

void SetTensors(const AttentionProblem& p, ProblemRecord* record) {
  record->q = p.q.data;
  record->k = p.k.data;
  record->v = p.v.data;
  record->out = p.out.data;
  record->lse = p.lse;
  record->mask = p.mask.data;
  record->q_batch = p.q.batch_stride;
  record->q_row = p.q.row_stride;
  record->q_head = p.q.head_stride;
  record->k_batch = p.k.batch_stride;
  record->k_row = p.k.row_stride;
  record->k_head = p.k.head_stride;
  record->v_batch = p.v.batch_stride;
  record->v_row = p.v.row_stride;
  record->v_head = p.v.head_stride;
  record->out_batch = p.out.batch_stride;
  record->out_row = p.out.row_stride;
  record->out_head = p.out.head_stride;
  record->lse_batch = p.lse_batch_stride;
  record->lse_head = p.lse_head_stride;
  record->mask_batch = p.mask.batch_stride;
  record->mask_row = p.mask.row_stride;
  record->mask_head = p.mask.head_stride;
}

void SetOptions(const AttentionProblem& p, ProblemRecord* record) {
  record->head_dim = static_cast<int32_t>(p.head_dim);
  record->head_dim_v = static_cast<int32_t>(p.head_dim_v);
  record->num_q_heads = static_cast<int32_t>(p.num_q_heads);
  record->group = static_cast<int32_t>(p.group_size());
  record->mask_kind = DeviceMaskOf(p.mask);
  record->mask_padded_positions = p.mask.padded_positions;
  record->softmax_scale = p.softmax_scale;
  record->softcap = p.softcap > 0 ? p.softcap : 0.0f;
  record->output_fp32 = p.output_dtype == DataType::kFloat32;
  record->wide_output = !record->output_fp32 && p.head_dim_v % 8 == 0 &&
                        AlignmentOf(p.out, p.output_dtype) == 16;
}

// Appends to the blob's floats; the offset of the first.
int32_t Append(std::span<const float> values, float* floats, int64_t* used) {
  const auto offset = static_cast<int32_t>(*used);
  std::copy(values.begin(), values.end(), floats + *used);
  *used += static_cast<int64_t>(values.size());
  return offset;
}

void SetPerHeadValues(const AttentionProblem& p, float* floats, int64_t* used,
                      ProblemRecord* record) {
  record->sinks_offset = p.sinks.empty() ? -1 : Append(p.sinks, floats, used);
  record->alibi_offset = -1;
  record->alibi_batch = 0;
  if (p.alibi_slopes.empty()) return;
  const bool alike = p.alibi_batch_stride == 0;
  record->alibi_offset = static_cast<int32_t>(*used);
  record->alibi_batch = alike ? 0 : p.num_q_heads;
  for (int64_t b = 0; b < (alike ? 1 : p.batch); ++b) {
    Append(p.alibi_slopes.subspan(b * p.alibi_batch_stride, p.num_q_heads),
           floats, used);
  }
}

template <typename Record>
void CopyRecords(const std::vector<Record>& records, std::byte* out) {
  if (records.empty()) return;
  std::memcpy(out, records.data(), records.size() * sizeof(Record));
}

}  // namespace

int CopyBytes(const AttentionProblem& problem) {
  return static_cast<int>(std::min({AlignmentOf(problem.q, problem.dtype),
                                    AlignmentOf(problem.k, problem.dtype),
                                    AlignmentOf(problem.v, problem.dtype)}));
}

absl::Status WriteBlob(const LaunchPlan& plan,
                       std::span<const AttentionProblem* const> problems,
                       std::byte* out) {
  auto* records = reinterpret_cast<ProblemRecord*>(out);
  auto* floats = reinterpret_cast<float*>(out + plan.floats_offset);
  int64_t used = 0;
  for (size_t i = 0; i < plan.members.size(); ++i) {
    const AttentionProblem& problem = *problems[plan.members[i]];
    if (CopyBytes(problem) < plan.copy_bytes[i]) {
      return absl::InternalError(
          absl::StrCat("sm80: q, k or v is aligned to ", CopyBytes(problem),
                       " bytes, planned for ", plan.copy_bytes[i]));
    }
    ProblemRecord record = {};
    SetTensors(problem, &record);
    SetOptions(problem, &record);
    SetPerHeadValues(problem, floats, &used, &record);
    record.copy_bytes = plan.copy_bytes[i];
    records[i] = record;
  }
  ATTENDANT_CHECK(used == plan.num_floats);
  CopyRecords(plan.runs, out + plan.runs_offset);
  CopyRecords(plan.segments, out + plan.segments_offset);
  return absl::OkStatus();
}

}  // namespace attendant::kernels::sm80
