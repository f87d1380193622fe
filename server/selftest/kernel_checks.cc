#include "server/selftest/kernel_checks.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/attention.h"
#include "kernels/base/data_type.h"
#include "kernels/reference/row_check.h"
#include "server/selftest/direct_call.h"
#include "server/server_info.h"

namespace attendant::server {
namespace {

using kernels::DataType;

constexpr int64_t kBatch = 2;
constexpr int64_t kQHeads = 4;
constexpr int64_t kKvHeads = 2;
constexpr int64_t kRows = 150;  // more than a tile of queries
constexpr int64_t kKeys = 290;  // more than two blocks of keys, with a tail
constexpr int64_t kCheckedHeads = 4;
constexpr int64_t kCheckedRows = 6;

DataType HostType(v1::DataType dtype) {
  if (dtype == v1::DATA_TYPE_FP16) return DataType::kFloat16;
  if (dtype == v1::DATA_TYPE_BF16) return DataType::kBFloat16;
  return DataType::kFloat32;
}

// Numbers around 0 as attention has them.
std::string RandomTensor(DataType dtype, int64_t elements, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::string bytes(static_cast<size_t>(elements * SizeOf(dtype)), '\0');
  for (int64_t i = 0; i < elements; ++i) {
    kernels::StoreFromFloat(bytes.data(), dtype, i, normal(random));
  }
  return bytes;
}

void SetTensor(v1::DataType dtype, int64_t rows, int64_t heads, int64_t dim,
               uint64_t seed, v1::TensorSpec* spec, std::string* data) {
  spec->set_dtype(dtype);
  spec->set_layout(v1::LAYOUT_BSHD);
  for (const int64_t n : {kBatch, rows, heads, dim}) spec->add_shape(n);
  *data = RandomTensor(HostType(dtype), kBatch * rows * heads * dim, seed);
}

v1::AttendRequest MakeRequest(v1::DataType dtype, int64_t dim, int64_t dim_v,
                              int64_t rows) {
  v1::AttendRequest request;
  request.set_return_lse(true);
  request.set_alignment(v1::CAUSAL_ALIGNMENT_BOTTOM_RIGHT);
  SetTensor(dtype, rows, kQHeads, dim, 1, request.mutable_q(),
            request.mutable_q_data());
  SetTensor(dtype, kKeys, kKvHeads, dim, 2, request.mutable_k(),
            request.mutable_k_data());
  SetTensor(dtype, kKeys, kKvHeads, dim_v, 3, request.mutable_v(),
            request.mutable_v_data());
  return request;
}

void AddMask(v1::DataType type, int64_t entry_bytes,
             v1::AttendRequest* request) {
  v1::TensorSpec* mask = request->mutable_mask();
  mask->set_dtype(type);
  for (const int64_t n : {int64_t{1}, int64_t{1}, kRows, kKeys}) {
    mask->add_shape(n);
  }
  if (type == v1::DATA_TYPE_FP32) {
    request->set_mask_data(RandomTensor(DataType::kFloat32, kRows * kKeys, 4));
    return;
  }
  std::mt19937_64 random(5);
  std::string bytes(static_cast<size_t>(kRows * entry_bytes), '\0');
  for (char& byte : bytes) {
    byte = static_cast<char>(type == v1::DATA_TYPE_BOOL ? random() & 1
                                                        : random() & 0xff);
  }
  request->set_mask_data(std::move(bytes));
}

void AddOptions(v1::DataType dtype, std::vector<KernelCase>* cases) {
  const auto add = [&](const std::string& name, int64_t rows,
                       const auto& change) {
    KernelCase added{name, MakeRequest(dtype, 128, 128, rows)};
    change(&added.request);
    cases->push_back(std::move(added));
  };
  for (const int64_t rows : {int64_t{1}, kRows}) {
    add("window", rows, [](auto* r) {
      r->set_window_left(50);
      r->set_window_right(7);
    });
    add("softcap", rows, [](auto* r) { r->set_softcap(2); });
    add("alibi", rows, [](auto* r) {
      for (int h = 0; h < kQHeads; ++h) r->add_alibi_slopes(0.1f * (h + 1));
    });
    add("sinks", rows, [](auto* r) {
      for (int h = 0; h < kQHeads; ++h) r->add_sinks(static_cast<float>(h));
    });
    add("negative scale", rows, [](auto* r) { r->set_softmax_scale(-0.1f); });
    add("fp32 output", rows,
        [](auto* r) { r->set_output_dtype(v1::DATA_TYPE_FP32); });
  }
  add("lengths", kRows, [](auto* r) {
    for (const int64_t n : {kRows, int64_t{33}}) r->add_seqlens_q(n);
    for (const int64_t n : {int64_t{129}, int64_t{0}}) r->add_seqlens_k(n);
  });
  add("boolean mask", kRows,
      [](auto* r) { AddMask(v1::DATA_TYPE_BOOL, kKeys, r); });
  add("bit mask", kRows,
      [](auto* r) { AddMask(v1::DATA_TYPE_BOOL_BITS, (kKeys + 7) / 8, r); });
  add("additive mask", kRows,
      [](auto* r) { AddMask(v1::DATA_TYPE_FP32, 0, r); });
}

}  // namespace

std::vector<KernelCase> KernelCases(v1::DataType dtype) {
  constexpr std::pair<int64_t, int64_t> kHeadDims[] = {
      {40, 40},   {64, 64},   {96, 96},   {128, 128},
      {192, 128}, {192, 192}, {256, 256}, {64, 72}};
  std::vector<KernelCase> cases;
  for (const auto& [dim, dim_v] : kHeadDims) {
    for (const int64_t rows : {kRows, int64_t{7}, int64_t{1}}) {
      for (const bool causal : {false, true}) {
        KernelCase added{absl::StrCat("head_dim ", dim, "/", dim_v, " rows ",
                                      rows, causal ? " causal" : ""),
                         MakeRequest(dtype, dim, dim_v, rows)};
        added.request.set_causal(causal);
        cases.push_back(std::move(added));
      }
    }
  }
  AddOptions(dtype, &cases);
  return cases;
}

std::vector<std::string> KernelsOf(const AttentionEngine& engine) {
  const int capability = engine.device().properties.compute_capability;
  std::vector<std::string> names;
  for (const kernels::KernelEntry& entry : kernels::Kernels()) {
    if (capability >= entry.capability.min_compute_capability &&
        capability <= entry.capability.max_compute_capability) {
      names.emplace_back(entry.capability.kernel);
    }
  }
  return names;
}

absl::StatusOr<std::string> CheckKernel(AttentionEngine& engine,
                                        const Bounds& bounds,
                                        const std::string& kernel) {
  int cases = 0;
  double worst = 0;
  for (const v1::DataType dtype :
       {v1::DATA_TYPE_FP32, v1::DATA_TYPE_FP16, v1::DATA_TYPE_BF16}) {
    for (const KernelCase& c : KernelCases(dtype)) {
      const std::string name =
          absl::StrCat(kernels::Name(HostType(dtype)), " ", c.name);
      const auto answer = CallEngine(engine, bounds, c.request, kernel);
      if (absl::IsUnimplemented(answer.status())) continue;
      if (!answer.ok()) {
        return absl::InternalError(
            absl::StrCat(name, ": ", answer.status().ToString()));
      }
      const auto verdict = kernels::reference::CheckRows(
          answer->problem,
          kernels::reference::ChooseRows(answer->problem, kCheckedHeads,
                                         kCheckedRows, cases));
      worst = std::max(worst, verdict.worst);
      if (verdict.worst > 1) {
        return absl::InternalError(
            absl::StrCat(name, ": ", verdict.Describe()));
      }
      ++cases;
    }
  }
  if (cases == 0) return absl::InternalError("serves none of the cases");
  return absl::StrCat(cases, " cases, worst error ",
                      static_cast<int>(worst * 100), " % of what is allowed");
}

}  // namespace attendant::server
