#include "server/request/infer_translation.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/request/errors.h"

namespace attendant::server {
namespace {

using inference::InferParameter;
using InputTensor = inference::ModelInferRequest::InferInputTensor;
using Extent = ParsedRequest::Extent;

std::string TextOf(const InferParameter& value) {
  switch (value.parameter_choice_case()) {
    case InferParameter::kBoolParam:
      return value.bool_param() ? "true" : "false";
    case InferParameter::kInt64Param:
      return absl::StrCat(value.int64_param());
    case InferParameter::kUint64Param:
      return absl::StrCat(value.uint64_param());
    case InferParameter::kDoubleParam:
      return absl::StrCat(value.double_param());
    case InferParameter::kStringParam:
      return value.string_param();
    default:
      return "unset";
  }
}

std::string FieldOf(const std::string& parameter) {
  return absl::StrCat("parameters[", parameter, "]");
}

// Numbers and booleans may come as text too: not every client has a type for
// them.
absl::StatusOr<double> Number(const std::string& name,
                              const InferParameter& value) {
  double number = 0;
  if (!value.has_bool_param() && absl::SimpleAtod(TextOf(value), &number)) {
    return number;
  }
  return InvalidField(FieldOf(name), TextOf(value), "a number");
}

absl::StatusOr<int64_t> Integer(const std::string& name,
                                const InferParameter& value) {
  int64_t number = 0;
  if (!value.has_bool_param() && absl::SimpleAtoi(TextOf(value), &number)) {
    return number;
  }
  return InvalidField(FieldOf(name), TextOf(value), "an integer of 64 bits");
}

absl::StatusOr<bool> Boolean(const std::string& name,
                             const InferParameter& value) {
  const std::string text = absl::AsciiStrToLower(TextOf(value));
  if (text == "true") return true;
  if (text == "false") return false;
  return InvalidField(FieldOf(name), TextOf(value), "a bool: true or false");
}

template <typename Value>
absl::StatusOr<Value> Word(const std::string& name, const InferParameter& value,
                           const std::map<std::string, Value>& words) {
  const auto found = words.find(absl::AsciiStrToUpper(TextOf(value)));
  if (value.has_string_param() && found != words.end()) return found->second;
  std::string all;
  for (const auto& [word, meaning] : words) {
    absl::StrAppend(&all, all.empty() ? "" : ", ", word);
  }
  return InvalidField(FieldOf(name), TextOf(value),
                      absl::StrCat("one of ", all));
}

const std::map<std::string, v1::DataType>& FloatTypes() {
  static const auto* types =
      new std::map<std::string, v1::DataType>{{"FP32", v1::DATA_TYPE_FP32},
                                              {"FP16", v1::DATA_TYPE_FP16},
                                              {"BF16", v1::DATA_TYPE_BF16}};
  return *types;
}

class Translator {
 public:
  Translator(const ParsedInfer& infer, const grpc::ByteBuffer& message)
      : infer_(infer), message_(message) {}

  absl::StatusOr<TranslatedInfer> Translate() {
    const auto& header = infer_.header;
    RETURN_IF_ERROR(CheckModel(header.model_name(), header.model_version()));
    result_.reply.id = header.id();
    request().set_request_id(header.id());
    for (const auto& [name, value] : header.parameters()) {
      RETURN_IF_ERROR(TakeParameter(name, value));
    }
    if (static_cast<int>(infer_.raw.size()) != header.inputs_size()) {
      return InvalidField(
          "raw_input_contents", absl::StrCat(infer_.raw.size(), " entries"),
          absl::StrCat(header.inputs_size(),
                       " entries, one per input: typed contents are not read"));
    }
    for (int i = 0; i < header.inputs_size(); ++i) {
      RETURN_IF_ERROR(TakeInput(header.inputs(i), infer_.raw[i]));
    }
    RETURN_IF_ERROR(TakeOutputs());
    return std::move(result_);
  }

 private:
  v1::AttendRequest& request() { return result_.request.header; }

  absl::Status TakeParameter(const std::string& name,
                             const InferParameter& value) {
    const auto setter = Setters().find(name);
    if (setter == Setters().end()) {
      return UnimplementedField(FieldOf(name), TextOf(value),
                                "a parameter that this model has");
    }
    return setter->second(*this, name, value);
  }

  using Setter = std::function<absl::Status(Translator&, const std::string&,
                                            const InferParameter&)>;

  // A setter from a reader of values and what to do with one.
  template <typename Read, typename Take>
  static Setter Sets(Read read, Take take) {
    return [=](Translator& self, const std::string& name,
               const InferParameter& value) -> absl::Status {
      ASSIGN_OR_RETURN(const auto got, read(name, value));
      take(self, got);
      return absl::OkStatus();
    };
  }

  static const std::map<std::string, Setter>& Setters() {
    static const auto* setters = new std::map<std::string, Setter>{
        {"softmax_scale", Sets(Number,
                               [](auto& t, double v) {
                                 t.request().set_softmax_scale(
                                     static_cast<float>(v));
                               })},
        {"softcap", Sets(Number,
                         [](auto& t, double v) {
                           t.request().set_softcap(static_cast<float>(v));
                         })},
        {"causal",
         Sets(Boolean, [](auto& t, bool v) { t.request().set_causal(v); })},
        {"return_lse",
         Sets(Boolean, [](auto& t, bool v) { t.request().set_return_lse(v); })},
        {"window_left",
         Sets(Integer,
              [](auto& t, int64_t v) { t.request().set_window_left(v); })},
        {"window_right",
         Sets(Integer,
              [](auto& t, int64_t v) { t.request().set_window_right(v); })},
        {"timeout",
         [](Translator& t, const std::string& name,
            const InferParameter& value) -> absl::Status {
           ASSIGN_OR_RETURN(const int64_t us, Integer(name, value));
           if (us <= 0 || us > int64_t{86'400'000'000}) {
             return InvalidField(FieldOf(name), absl::StrCat(us),
                                 "1..86400000000 microseconds");
           }
           t.result_.timeout = std::chrono::microseconds(us);
           return absl::OkStatus();
         }},
        {"ordering_key",
         [](Translator& t, const std::string& name,
            const InferParameter& value) -> absl::Status {
           if (!value.has_string_param()) {
             return InvalidField(FieldOf(name), TextOf(value), "a string");
           }
           t.request().set_ordering_key(value.string_param());
           return absl::OkStatus();
         }},
        {"alignment",
         Sets(
             [](const std::string& name, const InferParameter& value) {
               return Word<v1::CausalAlignment>(
                   name, value,
                   {{"TOP_LEFT", v1::CAUSAL_ALIGNMENT_TOP_LEFT},
                    {"BOTTOM_RIGHT", v1::CAUSAL_ALIGNMENT_BOTTOM_RIGHT}});
             },
             [](auto& t, v1::CausalAlignment v) {
               t.request().set_alignment(v);
             })},
        {"layout",
         Sets(
             [](const std::string& name, const InferParameter& value) {
               return Word<v1::Layout>(name, value,
                                       {{"BSHD", v1::LAYOUT_BSHD},
                                        {"BHSD", v1::LAYOUT_BHSD},
                                        {"THD", v1::LAYOUT_THD}});
             },
             [](auto& t, v1::Layout v) { t.layout_ = v; })},
        {"compute_dtype", Sets(FloatWord,
                               [](auto& t, v1::DataType v) {
                                 t.request().set_compute_dtype(v);
                               })},
        {"output_dtype", Sets(FloatWord,
                              [](auto& t, v1::DataType v) {
                                t.request().set_output_dtype(v);
                              })},
    };
    return *setters;
  }

  static absl::StatusOr<v1::DataType> FloatWord(const std::string& name,
                                                const InferParameter& value) {
    return Word(name, value, FloatTypes());
  }

  absl::Status TakeInput(const InputTensor& input, const Extent& raw) {
    const std::string& name = input.name();
    if (!seen_.insert(name).second) {
      return InvalidField("inputs", absl::StrCat("'", name, "' twice"),
                          "inputs of different names");
    }
    if (!input.parameters().empty()) {
      return UnimplementedField(
          absl::StrCat(name, ".", FieldOf(input.parameters().begin()->first)),
          "set", "unset: contents come in the message");
    }
    if (input.has_contents()) {
      return UnimplementedField(absl::StrCat(name, ".contents"), "set",
                                "unset: use raw_input_contents");
    }
    v1::AttendRequest& r = request();
    if (name == "q")
      return TakeTensor(input, raw, TensorField::kQ, r.mutable_q());
    if (name == "k")
      return TakeTensor(input, raw, TensorField::kK, r.mutable_k());
    if (name == "v")
      return TakeTensor(input, raw, TensorField::kV, r.mutable_v());
    if (name == "mask") {
      return TakeTensor(input, raw, TensorField::kMask, r.mutable_mask());
    }
    if (name == "cu_seqlens_q")
      return TakeList(input, raw, r.mutable_cu_seqlens_q());
    if (name == "cu_seqlens_k")
      return TakeList(input, raw, r.mutable_cu_seqlens_k());
    if (name == "seqlens_q") return TakeList(input, raw, r.mutable_seqlens_q());
    if (name == "seqlens_k") return TakeList(input, raw, r.mutable_seqlens_k());
    if (name == "starts_q") return TakeList(input, raw, r.mutable_starts_q());
    if (name == "starts_k") return TakeList(input, raw, r.mutable_starts_k());
    if (name == "alibi_slopes")
      return TakeList(input, raw, r.mutable_alibi_slopes());
    if (name == "sinks") return TakeList(input, raw, r.mutable_sinks());
    return UnimplementedField("inputs", absl::StrCat("'", name, "'"),
                              "inputs that ModelMetadata names");
  }

  absl::Status TakeTensor(const InputTensor& input, const Extent& raw,
                          TensorField field, v1::TensorSpec* spec) {
    const auto type = FloatTypes().find(input.datatype());
    const bool is_mask = field == TensorField::kMask;
    if (type != FloatTypes().end()) {
      spec->set_dtype(type->second);
    } else if (is_mask && input.datatype() == "BOOL") {
      spec->set_dtype(v1::DATA_TYPE_BOOL);
    } else {
      return InvalidField(absl::StrCat(input.name(), ".datatype"),
                          input.datatype(),
                          is_mask ? "BOOL, FP32 or q's" : "FP32, FP16 or BF16");
    }
    *spec->mutable_shape() = input.shape();
    if (!is_mask) {
      spec->set_layout(layout_ != v1::LAYOUT_UNSPECIFIED ? layout_
                       : input.shape_size() == 3         ? v1::LAYOUT_THD
                                                         : v1::LAYOUT_BSHD);
    }
    result_.request.tensors[static_cast<int>(field)] = raw;
    return absl::OkStatus();
  }

  // Little-endian values into a repeated field.
  template <typename List>
  absl::Status TakeList(const InputTensor& input, const Extent& raw,
                        List* list) {
    using Value = typename List::value_type;
    if constexpr (std::is_same_v<Value, float>) {
      if (input.datatype() == "FP32") return ReadList<float>(input, raw, list);
      return WrongListType(input, "FP32");
    } else {
      if (input.datatype() == "INT32") {
        return ReadList<int32_t>(input, raw, list);
      }
      if constexpr (std::is_same_v<Value, int64_t>) {
        if (input.datatype() == "INT64") {
          return ReadList<int64_t>(input, raw, list);
        }
        return WrongListType(input, "INT32 or INT64");
      }
      return WrongListType(input, "INT32");
    }
  }

  static absl::Status WrongListType(const InputTensor& input,
                                    const char* bound) {
    return InvalidField(absl::StrCat(input.name(), ".datatype"),
                        input.datatype(), bound);
  }

  template <typename Value, typename List>
  absl::Status ReadList(const InputTensor& input, const Extent& raw,
                        List* list) {
    constexpr int64_t kSize = sizeof(Value);
    int64_t entries = 1;
    for (const int64_t size : input.shape()) {
      if (size < 0 || __builtin_mul_overflow(entries, size, &entries)) {
        return InvalidField(absl::StrCat(input.name(), ".shape"),
                            absl::StrCat(size), "sizes of 0 and more");
      }
    }
    list_bytes_ += raw.bytes;
    if (raw.bytes % kSize != 0 || raw.bytes / kSize != entries) {
      return InvalidField(absl::StrCat(input.name(), " in raw_input_contents"),
                          absl::StrCat(raw.bytes, " bytes"),
                          absl::StrCat(entries, " entries of ", kSize,
                                       " bytes, as its shape says"));
    }
    if (list_bytes_ > kMaxHeaderBytes) {
      return InvalidField(input.name(), absl::StrCat(raw.bytes, " bytes"),
                          absl::StrCat("at most ", kMaxHeaderBytes,
                                       " bytes of lists (max_header_bytes)"));
    }
    std::vector<Value> values(static_cast<size_t>(entries));
    RETURN_IF_ERROR(CopyTensorBytes(
        message_, raw.offset, raw.bytes, kernels::DataType::kFloat32,
        kernels::DataType::kFloat32,
        reinterpret_cast<std::byte*>(values.data())));
    list->Add(values.begin(), values.end());
    return absl::OkStatus();
  }

  absl::Status TakeOutputs() {
    std::vector<std::string>& names = result_.reply.outputs;
    for (const auto& output : infer_.header.outputs()) {
      const std::string& name = output.name();
      if (name != "output" && name != "lse") {
        return UnimplementedField("outputs", absl::StrCat("'", name, "'"),
                                  "'output' or 'lse'");
      }
      if (!output.parameters().empty()) {
        return UnimplementedField(
            absl::StrCat("outputs.",
                         FieldOf(output.parameters().begin()->first)),
            "set", "unset: tensors come in the message");
      }
      if (std::find(names.begin(), names.end(), name) != names.end()) {
        return InvalidField("outputs", absl::StrCat("'", name, "' twice"),
                            "outputs of different names");
      }
      names.push_back(name);
      if (name == "lse") request().set_return_lse(true);
    }
    if (!names.empty()) return absl::OkStatus();
    names.push_back("output");
    if (request().return_lse()) names.push_back("lse");
    return absl::OkStatus();
  }

  const ParsedInfer& infer_;
  const grpc::ByteBuffer& message_;
  v1::Layout layout_ = v1::LAYOUT_UNSPECIFIED;
  std::set<std::string> seen_;
  int64_t list_bytes_ = 0;
  TranslatedInfer result_;
};

}  // namespace

absl::StatusOr<TranslatedInfer> TranslateInfer(
    const ParsedInfer& infer, const grpc::ByteBuffer& message) {
  return Translator(infer, message).Translate();
}

}  // namespace attendant::server
