#include "server/warm_up.h"

#include <cmath>
#include <cstring>
#include <future>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/data_type.h"
#include "kernels/base/status_macros.h"
#include "server/request/tensor_geometry.h"

namespace attendant::server {
namespace {

using kernels::DataType;

constexpr std::chrono::seconds kPatience{60};
constexpr int64_t kKeys = 96;
constexpr float kValue = 1.5f;

struct Case {
  DataType dtype;
  int64_t head_dim;
  int64_t seqlen_q;  // 1 = the decode phase
  bool causal;
};

std::string Describe(const Case& c) {
  return absl::StrCat(Name(c.dtype), " head_dim ", c.head_dim, " seqlen_q ",
                      c.seqlen_q, c.causal ? " causal" : "");
}

ParsedRequest MakeRequest(const Case& c) {
  ParsedRequest parsed;
  v1::AttendRequest& header = parsed.header;
  header.set_causal(c.causal);
  header.set_alignment(v1::CAUSAL_ALIGNMENT_BOTTOM_RIGHT);
  header.set_return_lse(true);
  const auto set = [&](v1::TensorSpec* spec, TensorField field, int64_t rows,
                       int64_t heads) {
    spec->set_dtype(ToProto(c.dtype));
    spec->set_layout(v1::LAYOUT_BSHD);
    for (const int64_t n : {int64_t{1}, rows, heads, c.head_dim}) {
      spec->add_shape(n);
    }
    parsed.tensors[static_cast<int>(field)] = {
        0, rows * heads * c.head_dim * SizeOf(c.dtype)};
  };
  set(header.mutable_q(), TensorField::kQ, c.seqlen_q, 2);
  set(header.mutable_k(), TensorField::kK, kKeys, 1);
  set(header.mutable_v(), TensorField::kV, kKeys, 1);
  return parsed;
}

void FillInput(const Case& c, AttentionJob* job) {
  std::memset(job->input.data(), 0, static_cast<size_t>(job->input.bytes()));
  std::byte* v = job->input.data() + job->request->v_offset;
  for (int64_t i = 0; i < kKeys * c.head_dim; ++i) {
    kernels::StoreFromFloat(v, c.dtype, i, kValue);
  }
}

absl::Status CheckOutput(const Case& c, const AttentionJob& job) {
  const int64_t count = job.request->output_bytes / SizeOf(c.dtype);
  for (int64_t i = 0; i < count; ++i) {
    const float o = kernels::LoadAsFloat(job.output->data(), c.dtype, i);
    if (std::abs(o - kValue) <= 0.02f) continue;
    return absl::InternalError(absl::StrCat("warm-up of ", Describe(c), ": O[",
                                            i, "] is ", o, ", must be ",
                                            kValue));
  }
  return absl::OkStatus();
}

absl::Status Run(AttentionEngine& engine, const Bounds& bounds, const Case& c) {
  auto request =
      ValidateRequest(MakeRequest(c), bounds, engine.device().properties);
  if (!request.ok()) return absl::OkStatus();  // not served here
  ASSIGN_OR_RETURN(
      const std::shared_ptr<AttentionJob> job,
      engine.Admit(std::move(request).value(), Clock::now() + kPatience));
  FillInput(c, job.get());
  std::promise<absl::Status> done;
  job->done = [&done](const JobResult& result) {
    done.set_value(result.status);
  };
  engine.Submit(job);
  if (absl::Status status = done.get_future().get(); !status.ok()) {
    return absl::InternalError(
        absl::StrCat("warm-up of ", Describe(c), ": ", status.ToString()));
  }
  return CheckOutput(c, *job);
}

}  // namespace

absl::Status WarmUp(AttentionEngine& engine, const Bounds& bounds) {
  for (const DataType dtype :
       {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16}) {
    for (const int64_t head_dim : {64, 128, 192, 256}) {
      for (const int64_t seqlen_q : {int64_t{1}, kKeys}) {
        for (const bool causal : {false, true}) {
          RETURN_IF_ERROR(
              Run(engine, bounds, {dtype, head_dim, seqlen_q, causal}));
        }
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace attendant::server
