#include "tests/testing/malformed_tables.h"

namespace attendant::testing {
namespace {

google::protobuf::UnknownFieldSet* Unknown(google::protobuf::Message* m) {
  return m->GetReflection()->MutableUnknownFields(m);
}

}  // namespace

MalformedTable WireCases() {
  return {
      {"UnknownField", [](Request& r) { Unknown(&r)->AddVarint(999, 1); },
       kUnimplemented, "#999", "field number 999", "knows"},
      {"UnknownFieldOfLargeNumber",
       [](Request& r) { Unknown(&r)->AddVarint(536870911, 1); }, kUnimplemented,
       "#536870911", "field number 536870911", "knows"},
      {"UnknownBytesField",
       [](Request& r) { Unknown(&r)->AddLengthDelimited(1006, "abc"); },
       kUnimplemented, "#1006", "field number 1006", "knows"},
      {"UnknownGroup", [](Request& r) { Unknown(&r)->AddGroup(77); },
       kUnimplemented, "#77", "field number 77", "knows"},
      {"UnknownFieldInSpec",
       [](Request& r) { Unknown(r.mutable_k())->AddFixed32(9, 1); },
       kUnimplemented, "k.#9", "field number 9", "knows"},
      {"UnknownFieldInRegion",
       [](Request& r) {
         Unknown(r.mutable_q()->mutable_region())->AddFixed64(4, 1);
       },
       kUnimplemented, "q.region.#4", "field number 4", "knows"},
      {"TensorBytesSentAsNumber",
       [](Request& r) {
         r.clear_q_data();
         Unknown(&r)->AddVarint(1001, 5);
       },
       kInvalid, "q_data", "wire type 0", "type"},
      {"FlagSentAsBytes",
       [](Request& r) { Unknown(&r)->AddLengthDelimited(18, "x"); }, kInvalid,
       "causal", "wire type 2", "type"},
      {"SpecSentAsNumber", [](Request& r) { Unknown(&r)->AddVarint(2, 5); },
       kInvalid, "q", "wire type 0", "type"},
      {"ShapeSentAsFixed32",
       [](Request& r) { Unknown(r.mutable_v())->AddFixed32(2, 5); }, kInvalid,
       "v.shape", "wire type 5", "type"},
      {"SpecThatIsNoMessage",
       [](Request& r) { Unknown(&r)->AddLengthDelimited(3, "\xff\xff\xff"); },
       kInvalid, "k", "malformed", "proto file"},
      {"SpecOfAMegabyte",
       [](Request& r) { r.mutable_q()->mutable_shape()->Resize(1 << 20, 1); },
       kInvalid, "q", "bytes long", "at most 65536"},
  };
}

MalformedTable EnvelopeCases() {
  return {
      {"LongRequestId",
       [](Request& r) { r.set_request_id(std::string(129, 'x')); }, kInvalid,
       "request_id", "129 characters", "at most 128"},
      {"RequestIdWithNewline", [](Request& r) { r.set_request_id("a\nb"); },
       kInvalid, "request_id", "byte 10 at 1", "printable ASCII"},
      {"RequestIdBeyondAscii",
       [](Request& r) { r.set_request_id("caf\xc3\xa9"); }, kInvalid,
       "request_id", "above 127", "printable ASCII"},
      {"RequestIdThatIsNotUtf8",
       [](Request& r) { Unknown(&r)->AddLengthDelimited(1, "\xc3("); },
       kInvalid, "request_id", "above 127", "printable ASCII"},
      {"LongOrderingKey",
       [](Request& r) { r.set_ordering_key(std::string(200, 'k')); }, kInvalid,
       "ordering_key", "200 characters", "at most 128"},
      {"OrderingKeyWithTab", [](Request& r) { r.set_ordering_key("\t"); },
       kInvalid, "ordering_key", "byte 9 at 0", "printable ASCII"},
      {"PriorityTooHigh", [](Request& r) { r.set_priority(101); }, kInvalid,
       "priority", "101", "-100..100"},
      {"PriorityTooLow", [](Request& r) { r.set_priority(-101); }, kInvalid,
       "priority", "-101", "-100..100"},
      {"Dropout", [](Request& r) { r.set_dropout_p(0.1f); }, kUnimplemented,
       "dropout_p", "0.1", "0"},
      {"DropoutNan", [](Request& r) { r.set_dropout_p(kNan); }, kUnimplemented,
       "dropout_p", "nan", "0"},
      {"InputRegion",
       [](Request& r) { r.mutable_k()->mutable_region()->set_name("shm"); },
       kUnimplemented, "k.region", "set", "inline"},
      {"MaskRegion",
       [](Request& r) {
         SetMask(r, v1::DATA_TYPE_BOOL, {2, 4, 3, 4});
         r.mutable_mask()->mutable_region();
       },
       kUnimplemented, "mask.region", "set", "inline"},
      {"OutputRegion", [](Request& r) { r.mutable_output_region(); },
       kUnimplemented, "output_region", "set", "inline"},
      {"LseRegion", [](Request& r) { r.mutable_lse_region(); }, kUnimplemented,
       "lse_region", "set", "inline"},
  };
}

MalformedTable TypeCases() {
  return {
      {"NoDtype", [](Request& r) { r.mutable_q()->clear_dtype(); }, kInvalid,
       "q.dtype", "UNSPECIFIED", "FP32, FP16 or BF16"},
      {"BooleanQueries",
       [](Request& r) { r.mutable_q()->set_dtype(v1::DATA_TYPE_BOOL); },
       kInvalid, "q.dtype", "BOOL", "FP32, FP16 or BF16"},
      {"Fp8",
       [](Request& r) { r.mutable_q()->set_dtype(v1::DATA_TYPE_FP8_E4M3); },
       kUnimplemented, "q.dtype", "FP8_E4M3", "FP32, FP16 or BF16"},
      {"Fp8Values",
       [](Request& r) { r.mutable_v()->set_dtype(v1::DATA_TYPE_FP8_E5M2); },
       kUnimplemented, "v.dtype", "FP8_E5M2", "FP32"},
      {"DtypeOfANewerContract",
       [](Request& r) {
         r.mutable_q()->set_dtype(static_cast<v1::DataType>(42));
       },
       kUnimplemented, "q.dtype", "42", "FP32, FP16 or BF16"},
      {"KeysOfAnotherDtype",
       [](Request& r) { r.mutable_k()->set_dtype(v1::DATA_TYPE_BF16); },
       kInvalid, "k.dtype", "BF16", "FP32, as q.dtype"},
      {"ValuesWithoutDtype", [](Request& r) { r.mutable_v()->clear_dtype(); },
       kInvalid, "v.dtype", "UNSPECIFIED", "FP32"},
      {"ComputeInFp8",
       [](Request& r) { r.set_compute_dtype(v1::DATA_TYPE_FP8_E4M3); },
       kUnimplemented, "compute_dtype", "FP8_E4M3", "FP32, FP16 or BF16"},
      {"ComputeInBool",
       [](Request& r) { r.set_compute_dtype(v1::DATA_TYPE_BOOL); }, kInvalid,
       "compute_dtype", "BOOL", "FP32, FP16 or BF16"},
      {"OutputInAnotherHalf",
       [](Request& r) { r.set_output_dtype(v1::DATA_TYPE_BF16); }, kInvalid,
       "output_dtype", "BF16", "FP32"},
      {"OutputInBits",
       [](Request& r) { r.set_output_dtype(v1::DATA_TYPE_BOOL_BITS); },
       kInvalid, "output_dtype", "BOOL_BITS", "FP32, FP16 or BF16"},
      {"NoLayout", [](Request& r) { r.mutable_q()->clear_layout(); }, kInvalid,
       "q.layout", "UNSPECIFIED", "BSHD, BHSD or THD"},
      {"LayoutOfANewerContract",
       [](Request& r) {
         r.mutable_q()->set_layout(static_cast<v1::Layout>(9));
       },
       kUnimplemented, "q.layout", "9", "BSHD, BHSD or THD"},
      {"KeysInAnotherLayout",
       [](Request& r) { r.mutable_k()->set_layout(v1::LAYOUT_BHSD); }, kInvalid,
       "k.layout", "BHSD", "BSHD, as q.layout"},
      {"AlignmentOfANewerContract",
       [](Request& r) { r.set_alignment(static_cast<v1::CausalAlignment>(3)); },
       kUnimplemented, "alignment", "3", "TOP_LEFT"},
  };
}

}  // namespace attendant::testing
