#include "client/cpp/cli/request_flags.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/cli/random_tensors.h"
#include "client/cpp/cli/tensor_input.h"
#include "client/cpp/client_error.h"

namespace attendant::client::cli {
namespace {

constexpr FlagSpec kFlags[] = {
    {"q", "FILE[:NAME]", "query tensor; NAME where a file holds several"},
    {"k", "FILE[:NAME]", "key tensor"},
    {"v", "FILE[:NAME]", "value tensor"},
    {"qkv", "FILE[:NAME]", "packed tensor instead of q, k, v"},
    {"mask", "FILE[:NAME]", "bool = attend where true; floats are added"},
    {"random", "B,SQ,SK,HQ,HKV,D[,DV]", "random normal tensors instead"},
    {"seed", "N", "of --random [1]"},
    {"dtype", "fp32|fp16|bf16",
     "of --random [fp32]; bf16: what 16-bit"
     " integers hold"},
    {"layout", "bshd|bhsd|thd", "order of dimensions [bshd]"},
    {"num-q-heads", "N", "of a packed [.., HQ + 2 HKV, D] tensor"},
    {"num-kv-heads", "N", "of a packed [.., HQ + 2 HKV, D] tensor"},
    {"causal", "", "a query sees no later key"},
    {"alignment", "top_left|bottom_right", "diagonal where lengths differ"},
    {"window-left", "N", "keys seen before the diagonal [all]"},
    {"window-right", "N", "keys seen behind the diagonal [all]"},
    {"scale", "X", "softmax scale [head_dim ** -0.5]"},
    {"softcap", "X", "cap of the logits [none]"},
    {"alibi-slopes", "X,X,...", "one per query head (and batch entry)"},
    {"sinks", "X,X,...", "one logit per query head"},
    {"cu-seqlens-q", "N,N,...", "thd: sequence borders in q"},
    {"cu-seqlens-k", "N,N,...", "thd: sequence borders in k and v"},
    {"seqlens-q", "N,N,...", "used rows of q per batch entry [all]"},
    {"seqlens-k", "N,N,...", "used rows of k and v [all]"},
    {"starts-q", "N,N,...", "first used row of q per batch entry [0]"},
    {"starts-k", "N,N,...", "first used row of k and v [0]"},
    {"mask-bits", "", "send a boolean mask as bits"},
    {"compute-dtype", "fp32|fp16|bf16", "[the input's]"},
    {"output-dtype", "fp32|fp16|bf16", "[the input's]"},
    {"lse", "", "ask for the log-sum-exp too"},
    {"request-id", "TEXT", "echoed in logs and traces"},
    {"priority", "N", "-100..100, higher is sooner [0]"},
    {"ordering-key", "TEXT", "requests of one key are computed in order"},
};

template <typename T>
absl::StatusOr<T> Choose(const Flags& flags, const std::string& name,
                         const std::map<std::string, T>& choices, T otherwise) {
  if (!flags.Has(name)) return otherwise;
  const auto found = choices.find(flags.String(name));
  if (found != choices.end()) return found->second;
  std::string bound;
  for (const auto& [choice, unused] : choices) {
    absl::StrAppend(&bound, bound.empty() ? "" : ", ", choice);
  }
  return InvalidField("--" + name, flags.String(name), bound);
}

absl::StatusOr<DataType> ChooseDataType(const Flags& flags,
                                        const std::string& name) {
  return Choose<DataType>(flags, name,
                          {{"fp32", DataType::kFloat32},
                           {"fp16", DataType::kFloat16},
                           {"bf16", DataType::kBFloat16}},
                          DataType::kUnset);
}

// Collects the first error; assigns what parsed.
class Assigner {
 public:
  explicit Assigner(const Flags& flags) : flags_(flags) {}
  const absl::Status& status() const { return status_; }

  template <typename T>
  void Assign(absl::StatusOr<T> from, T* to) {
    if (from.ok()) {
      *to = *std::move(from);
    } else {
      status_.Update(from.status());
    }
  }
  void Int(const std::string& name, int64_t* to) {
    std::optional<int64_t> value;
    Assign(flags_.Int(name), &value);
    if (value.has_value()) *to = *value;
  }
  // Files may have given the list already.
  void Ints(const std::string& name, std::vector<int64_t>* to) {
    if (flags_.Has(name)) Assign(flags_.Ints(name), to);
  }
  void Floats(const std::string& name, std::vector<float>* to) {
    if (flags_.Has(name)) Assign(flags_.Floats(name), to);
  }
  void Int32s(const std::string& name, std::vector<int32_t>* to) {
    if (!flags_.Has(name)) return;
    std::vector<int64_t> wide;
    Assign(flags_.Ints(name), &wide);
    to->clear();
    for (const int64_t value : wide) {
      if (value != static_cast<int32_t>(value)) {
        status_.Update(
            InvalidField("--" + name, absl::StrCat(value), "a 32-bit integer"));
      }
      to->push_back(static_cast<int32_t>(value));
    }
  }

 private:
  const Flags& flags_;
  absl::Status status_;
};

absl::Status SetOptions(const Flags& flags, AttendArgs* args) {
  Assigner assigner(flags);
  int64_t priority = 0;
  assigner.Int("num-q-heads", &args->num_q_heads);
  assigner.Int("num-kv-heads", &args->num_kv_heads);
  assigner.Int("priority", &priority);
  assigner.Assign(flags.Int("window-left"), &args->window_left);
  assigner.Assign(flags.Int("window-right"), &args->window_right);
  assigner.Assign(flags.Float("scale"), &args->softmax_scale);
  assigner.Assign(flags.Float("softcap"), &args->softcap);
  assigner.Floats("alibi-slopes", &args->alibi_slopes);
  assigner.Floats("sinks", &args->sinks);
  assigner.Int32s("cu-seqlens-q", &args->cu_seqlens_q);
  assigner.Int32s("cu-seqlens-k", &args->cu_seqlens_k);
  assigner.Ints("seqlens-q", &args->seqlens_q);
  assigner.Ints("seqlens-k", &args->seqlens_k);
  assigner.Ints("starts-q", &args->starts_q);
  assigner.Ints("starts-k", &args->starts_k);
  assigner.Assign(ChooseDataType(flags, "compute-dtype"), &args->compute_dtype);
  assigner.Assign(ChooseDataType(flags, "output-dtype"), &args->output_dtype);
  assigner.Assign(
      Choose<CausalAlignment>(flags, "alignment",
                              {{"top_left", CausalAlignment::kTopLeft},
                               {"bottom_right", CausalAlignment::kBottomRight}},
                              CausalAlignment::kUnset),
      &args->alignment);
  args->causal = flags.Switch("causal");
  args->return_lse = flags.Switch("lse");
  args->request_id = flags.String("request-id");
  args->ordering_key = flags.String("ordering-key");
  // The server names the field's own, narrower bound.
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  args->priority =
      static_cast<int32_t>(std::min(std::max(priority, -kMax), kMax));
  return assigner.status();
}

}  // namespace

std::span<const FlagSpec> RequestFlags() { return kFlags; }

absl::StatusOr<Request> ReadRequest(const Flags& flags) {
  Request request;
  const absl::StatusOr<Layout> layout = Choose<Layout>(
      flags, "layout",
      {{"bshd", Layout::kBSHD}, {"bhsd", Layout::kBHSD}, {"thd", Layout::kTHD}},
      Layout::kBSHD);
  if (!layout.ok()) return layout.status();
  request.args.layout = *layout;
  const absl::StatusOr<DataType> dtype = ChooseDataType(flags, "dtype");
  if (!dtype.ok()) return dtype.status();
  absl::Status status = flags.Has("random")
                            ? MakeRandomTensors(flags, *dtype, &request)
                            : ReadTensors(flags, *dtype, &request);
  if (!status.ok()) return status;
  status = SetOptions(flags, &request.args);
  if (!status.ok()) return status;
  if (flags.Switch("mask-bits")) {
    status = PackMaskBits(&request);
    if (!status.ok()) return status;
  }
  return request;
}

}  // namespace attendant::client::cli
