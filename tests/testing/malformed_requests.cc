#include "tests/testing/malformed_requests.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace attendant::testing {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

using Request = v1::AttendRequest;
using Table = std::vector<MalformedRequest>;

int64_t BytesOf(v1::DataType dtype) {
  if (dtype == v1::DATA_TYPE_FP32) return 4;
  return dtype == v1::DATA_TYPE_BOOL ? 1 : 2;
}

// fp32 values in [-1, 1) from a fixed generator.
std::string Values(size_t count, uint32_t seed) {
  std::string bytes(count * sizeof(float), '\0');
  for (size_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    const float value = static_cast<float>(seed >> 8) / 8388608.0f - 1.0f;
    std::memcpy(&bytes[i * sizeof(float)], &value, sizeof(float));
  }
  return bytes;
}

void FillWithValues(Request* request) {
  request->set_q_data(Values(request->q_data().size() / 4, 1));
  request->set_k_data(Values(request->k_data().size() / 4, 2));
  request->set_v_data(Values(request->v_data().size() / 4, 3));
  request->set_qkv_data(Values(request->qkv_data().size() / 4, 4));
}

void SetMask(Request& r, v1::DataType dtype,
             const std::vector<int64_t>& shape) {
  SetTensor(dtype, v1::LAYOUT_UNSPECIFIED, shape, r.mutable_mask(),
            r.mutable_mask_data());
}

// head_dim of q and k, bytes to match.
void SetHeadDim(Request& r, int64_t head_dim) {
  SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_BSHD, {2, 3, 4, head_dim},
            r.mutable_q(), r.mutable_q_data());
  SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_BSHD, {2, 4, 2, head_dim},
            r.mutable_k(), r.mutable_k_data());
}

void AddStrides(v1::TensorSpec* spec, const std::vector<int64_t>& strides) {
  for (const int64_t stride : strides) spec->add_strides(stride);
}

google::protobuf::UnknownFieldSet* Unknown(google::protobuf::Message* m) {
  return m->GetReflection()->MutableUnknownFields(m);
}

void AddWireCases(Table* table) {
  Table cases = {
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
  table->insert(table->end(), cases.begin(), cases.end());
}

void AddTextCases(Table* table) {
  Table cases = {
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
  table->insert(table->end(), cases.begin(), cases.end());
}

void AddTypeCases(Table* table) {
  Table cases = {
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
  table->insert(table->end(), cases.begin(), cases.end());
}

void AddShapeCases(Table* table) {
  const auto shape = [](v1::TensorSpec* spec, int i, int64_t size) {
    spec->set_shape(i, size);
  };
  Table cases = {
      {"NoQueries",
       [](Request& r) {
         r.clear_q();
         r.clear_q_data();
       },
       kInvalid, "q", "unset", "set (or qkv)"},
      {"NoKeys", [](Request& r) { r.clear_k(); }, kInvalid, "k", "unset",
       "set"},
      {"NoValues", [](Request& r) { r.clear_v(); }, kInvalid, "v", "unset",
       "set"},
      {"EmptyRequest", [](Request& r) { r.Clear(); }, kInvalid, "q", "unset",
       "set (or qkv)"},
      {"RankTooSmall",
       [](Request& r) { r.mutable_q()->mutable_shape()->RemoveLast(); },
       kInvalid, "q.shape", "3 dimensions", "[batch, seqlen, heads, head_dim]"},
      {"RankTooLarge", [](Request& r) { r.mutable_v()->add_shape(1); },
       kInvalid, "v.shape", "5 dimensions", "of 4"},
      {"NegativeSize", [=](Request& r) { shape(r.mutable_k(), 1, -4); },
       kInvalid, "k.shape[1]", "-4", "at least 0"},
      {"SizesThatOverflow",
       [](Request& r) {
         for (int i = 0; i < 3; ++i) {
           r.mutable_q()->set_shape(i, int64_t{1} << 40);
         }
       },
       kInvalid, "q.shape", "1099511627776", "max_request_bytes"},
      {"LargestSizes",
       [](Request& r) {
         for (int i = 0; i < 4; ++i) {
           r.mutable_k()->set_shape(i, std::numeric_limits<int64_t>::max());
         }
       },
       kInvalid, "k.shape", "9223372036854775807", "max_request_bytes"},
      {"LargerThanAnyMessage",
       [=](Request& r) { shape(r.mutable_q(), 1, 1 << 28); }, kInvalid,
       "q.shape", "268435456", "max_request_bytes"},
      {"BatchTooLarge",
       [](Request& r) {
         r.mutable_q()->set_shape(0, (1 << 20) + 1);
         AddStrides(r.mutable_q(), {0, 32, 8, 1});
       },
       kInvalid, "q.shape[0]", "1048577", "max_batch"},
      {"QueriesTooLong",
       [](Request& r) {
         r.mutable_q()->set_shape(1, (int64_t{1} << 30) + 1);
         AddStrides(r.mutable_q(), {96, 0, 8, 1});
       },
       kInvalid, "q.shape[1]", "1073741825", "max_seqlen"},
      {"KeysTooLong",
       [](Request& r) {
         r.mutable_k()->set_shape(1, int64_t{1} << 31);
         AddStrides(r.mutable_k(), {64, 0, 8, 1});
       },
       kInvalid, "k.shape[1]", "2147483648", "max_seqlen"},
      {"TooManyHeads",
       [](Request& r) {
         r.mutable_q()->set_shape(2, 1 << 17);
         AddStrides(r.mutable_q(), {96, 32, 0, 1});
       },
       kInvalid, "q.shape[2]", "131072", "max_heads"},
      {"HeadDimZero", [](Request& r) { SetHeadDim(r, 0); }, kInvalid,
       "q.shape[3]", "0", "1..256"},
      {"HeadDim257", [](Request& r) { SetHeadDim(r, 257); }, kInvalid,
       "q.shape[3]", "257", "1..256"},
      {"HeadDim512", [](Request& r) { SetHeadDim(r, 512); }, kInvalid,
       "q.shape[3]", "512", "1..256"},
      {"ValueHeadDimZero",
       [](Request& r) {
         SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_BSHD, {2, 4, 2, 0},
                   r.mutable_v(), r.mutable_v_data());
       },
       kInvalid, "v.shape[3]", "0", "1..256"},
      {"ValueHeadDim257",
       [](Request& r) {
         SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_BSHD, {2, 4, 2, 257},
                   r.mutable_v(), r.mutable_v_data());
       },
       kInvalid, "v.shape[3]", "257", "1..256"},
      {"KeysOfAnotherBatch", [=](Request& r) { shape(r.mutable_k(), 0, 1); },
       kInvalid, "k.shape[0]", "1", "2, the batch of q"},
      {"ValuesOfAnotherBatch", [=](Request& r) { shape(r.mutable_v(), 0, 3); },
       kInvalid, "v.shape[0]", "3", "2, the batch of q"},
      {"KeysOfAnotherHeadDim", [=](Request& r) { shape(r.mutable_k(), 3, 16); },
       kInvalid, "k.shape[3]", "16", "8, the head_dim of q"},
      {"ValuesOfAnotherLength", [=](Request& r) { shape(r.mutable_v(), 1, 5); },
       kInvalid, "v.shape[1]", "5", "4, the length of k"},
      {"ValuesOfOtherHeads", [=](Request& r) { shape(r.mutable_v(), 2, 1); },
       kInvalid, "v.shape[2]", "1", "2, the heads of k"},
      {"HeadsThatDoNotDivide",
       [](Request& r) {
         SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_BSHD, {2, 3, 5, 8},
                   r.mutable_q(), r.mutable_q_data());
       },
       kInvalid, "q.shape[2]", "5", "a multiple of the 2 heads"},
      {"NoKvHeads",
       [](Request& r) {
         r.mutable_k()->set_shape(2, 0);
         r.mutable_v()->set_shape(2, 0);
       },
       kInvalid, "k.shape[2]", "0", "at least 1"},
  };
  table->insert(table->end(), cases.begin(), cases.end());
}

void AddStrideAndByteCases(Table* table) {
  Table cases = {
      {"StridesOfAnotherRank",
       [](Request& r) {
         AddStrides(r.mutable_q(), {32, 8, 1});
       },
       kInvalid, "q.strides", "3 entries", "4 entries"},
      {"NegativeStride",
       [](Request& r) {
         AddStrides(r.mutable_k(), {64, -16, 8, 1});
       },
       kInvalid, "k.strides[1]", "-16", "at least 0"},
      {"InnermostStrideTwo",
       [](Request& r) {
         AddStrides(r.mutable_v(), {64, 16, 8, 2});
       },
       kInvalid, "v.strides[3]", "2", "1 (the innermost"},
      {"InnermostStrideZero",
       [](Request& r) {
         AddStrides(r.mutable_q(), {96, 32, 8, 0});
       },
       kInvalid, "q.strides[3]", "0", "1 (the innermost"},
      {"StrideThatOverflows",
       [](Request& r) {
         AddStrides(r.mutable_q(),
                    {std::numeric_limits<int64_t>::max(), 32, 8, 1});
       },
       kInvalid, "q.shape", "strides", "max_request_bytes"},
      {"StrideBeyondTheBytes",
       [](Request& r) {
         AddStrides(r.mutable_q(), {96, 40, 8, 1});
       },
       kInvalid, "q_data", "768 bytes", "exactly the 832 bytes"},
      {"TooFewBytes", [](Request& r) { r.mutable_q_data()->pop_back(); },
       kInvalid, "q_data", "767 bytes", "exactly the 768 bytes"},
      {"TooManyBytes", [](Request& r) { r.mutable_k_data()->push_back(0); },
       kInvalid, "k_data", "513 bytes", "exactly the 512 bytes"},
      {"NoBytes", [](Request& r) { r.clear_v_data(); }, kInvalid, "v_data",
       "0 bytes", "exactly the 512 bytes"},
      {"BytesOfAnEmptyTensor",
       [](Request& r) {
         r.mutable_k()->set_shape(1, 0);
         r.mutable_v()->set_shape(1, 0);
       },
       kInvalid, "k_data", "512 bytes", "exactly the 0 bytes"},
      {"QkvBytesWithoutQkv", [](Request& r) { r.set_qkv_data("1234"); },
       kInvalid, "qkv_data", "given", "absent"},
      {"MaskBytesWithoutMask", [](Request& r) { r.set_mask_data("1234"); },
       kInvalid, "mask_data", "4 bytes", "absent"},
      {"ReplyTooLarge",
       [](Request& r) {
         r.mutable_q()->set_shape(1, 1 << 24);
         r.set_alignment(v1::CAUSAL_ALIGNMENT_TOP_LEFT);
         AddStrides(r.mutable_q(), {32, 0, 8, 1});
         r.mutable_q_data()->resize(256);
       },
       kInvalid, "", "reply of", "max_response_bytes"},
      {"WorkTooLarge",
       [](Request& r) {
         r.set_causal(false);
         r.mutable_q()->set_shape(1, 1 << 20);
         AddStrides(r.mutable_q(), {32, 0, 8, 1});
         r.mutable_q_data()->resize(256);
         for (v1::TensorSpec* spec : {r.mutable_k(), r.mutable_v()}) {
           spec->set_shape(1, 1 << 28);
           AddStrides(spec, {16, 0, 8, 1});
         }
         r.mutable_k_data()->resize(128);
         r.mutable_v_data()->resize(128);
       },
       kInvalid, "", "FLOP", "max_work_flops"},
  };
  table->insert(table->end(), cases.begin(), cases.end());
}

void AddLengthCases(Table* table) {
  const auto packed = [](std::vector<int32_t> q, std::vector<int32_t> k) {
    return [q, k](Request& r) {
      r = GoodPackedRequest();
      r.mutable_cu_seqlens_q()->Assign(q.begin(), q.end());
      r.mutable_cu_seqlens_k()->Assign(k.begin(), k.end());
    };
  };
  Table cases = {
      {"CuSeqlensInPaddedLayout", [](Request& r) { r.add_cu_seqlens_q(0); },
       kInvalid, "cu_seqlens_q", "1 entries", "THD"},
      {"CuSeqlensKInPaddedLayout", [](Request& r) { r.add_cu_seqlens_k(0); },
       kInvalid, "cu_seqlens_k", "1 entries", "THD"},
      {"PackedWithoutCuSeqlens", packed({}, {}), kInvalid, "cu_seqlens_q",
       "empty", "batch + 1"},
      {"PackedWithoutCuSeqlensK", packed({0, 2, 6}, {}), kInvalid,
       "cu_seqlens_k", "0 entries", "3 entries"},
      {"CuSeqlensOfUnequalLength", packed({0, 2, 6}, {0, 8}), kInvalid,
       "cu_seqlens_k", "2 entries", "3 entries"},
      {"CuSeqlensNotFromZero", packed({1, 2, 6}, {0, 3, 8}), kInvalid,
       "cu_seqlens_q[0]", "1", "0"},
      {"CuSeqlensNegative", packed({0, -2, 6}, {0, 3, 8}), kInvalid,
       "cu_seqlens_q[1]", "-2", "at least 0"},
      {"CuSeqlensNotMonotone", packed({0, 2, 6}, {0, 9, 8}), kInvalid,
       "cu_seqlens_k[2]", "8", "at least 9"},
      {"CuSeqlensShortOfTotal", packed({0, 2, 5}, {0, 3, 8}), kInvalid,
       "cu_seqlens_q[2]", "5", "6, the tensor's total"},
      {"CuSeqlensBeyondTotal", packed({0, 2, 6}, {0, 3, 9}), kInvalid,
       "cu_seqlens_k[2]", "9", "8, the tensor's total"},
      {"SeqlensWithPacked",
       [](Request& r) {
         r = GoodPackedRequest();
         r.add_seqlens_q(1);
       },
       kInvalid, "seqlens_q", "1 entries", "cu_seqlens"},
      {"StartsWithPacked",
       [](Request& r) {
         r = GoodPackedRequest();
         r.add_starts_k(0);
       },
       kInvalid, "starts_k", "1 entries", "cu_seqlens"},
      {"SeqlensOfAnotherBatch", [](Request& r) { r.add_seqlens_q(1); },
       kInvalid, "seqlens_q", "1 entries", "2 entries"},
      {"SeqlenTooLong",
       [](Request& r) {
         r.add_seqlens_k(4);
         r.add_seqlens_k(5);
       },
       kInvalid, "seqlens_k[1]", "5", "0..4"},
      {"SeqlenNegative",
       [](Request& r) {
         r.add_seqlens_q(-1);
         r.add_seqlens_q(1);
       },
       kInvalid, "seqlens_q[0]", "-1", "0..3"},
      {"StartsOfAnotherBatch", [](Request& r) { r.add_starts_q(0); }, kInvalid,
       "starts_q", "1 entries", "2 entries"},
      {"StartAndSeqlenBeyondTheRows",
       [](Request& r) {
         for (const int64_t length : {2, 2}) r.add_seqlens_q(length);
         for (const int64_t start : {1, 2}) r.add_starts_q(start);
       },
       kInvalid, "starts_q[1]", "2", "0..1"},
      {"StartWithoutSeqlen",
       [](Request& r) {
         for (const int64_t start : {0, 1}) r.add_starts_k(start);
       },
       kInvalid, "starts_k[1]", "1", "0..0"},
      {"StartNegative",
       [](Request& r) {
         for (const int64_t start : {-1, 0}) r.add_starts_k(start);
       },
       kInvalid, "starts_k[0]", "-1", "0..0"},
      {"StartThatOverflows",
       [](Request& r) {
         for (const int64_t length : {4, 4}) r.add_seqlens_k(length);
         r.add_starts_k(std::numeric_limits<int64_t>::max());
         r.add_starts_k(0);
       },
       kInvalid, "starts_k[0]", "9223372036854775807", "0..0"},
      {"CausalWithoutAlignment", [](Request& r) { r.clear_alignment(); },
       kInvalid, "alignment", "unset", "sequence 0 has 3 queries but 4 keys"},
      {"WindowWithoutAlignment",
       [](Request& r) {
         r.clear_alignment();
         r.set_causal(false);
         r.set_window_left(0);
       },
       kInvalid, "alignment", "unset", "TOP_LEFT or BOTTOM_RIGHT"},
      {"AlibiWithoutAlignment",
       [](Request& r) {
         r.clear_alignment();
         r.set_causal(false);
         for (int h = 0; h < 4; ++h) r.add_alibi_slopes(0.5f);
       },
       kInvalid, "alignment", "unset", "TOP_LEFT or BOTTOM_RIGHT"},
      {"OneUnequalSequenceWithoutAlignment",
       [](Request& r) {
         r.clear_alignment();
         for (const int64_t length : {3, 2}) r.add_seqlens_q(length);
         for (const int64_t length : {3, 3}) r.add_seqlens_k(length);
       },
       kInvalid, "alignment", "unset", "sequence 1 has 2 queries but 3 keys"},
  };
  table->insert(table->end(), cases.begin(), cases.end());
}

void AddOptionCases(Table* table) {
  Table cases = {
      {"ScaleNan", [](Request& r) { r.set_softmax_scale(kNan); }, kInvalid,
       "softmax_scale", "nan", "finite"},
      {"ScaleInf", [](Request& r) { r.set_softmax_scale(-kInf); }, kInvalid,
       "softmax_scale", "-inf", "finite"},
      {"SoftcapNegative", [](Request& r) { r.set_softcap(-1); }, kInvalid,
       "softcap", "-1", "at least 0"},
      {"SoftcapNan", [](Request& r) { r.set_softcap(kNan); }, kInvalid,
       "softcap", "nan", "finite"},
      {"SoftcapInf", [](Request& r) { r.set_softcap(kInf); }, kInvalid,
       "softcap", "inf", "finite"},
      {"WindowLeftNegative", [](Request& r) { r.set_window_left(-1); },
       kInvalid, "window_left", "-1", "at least 0; unset means open"},
      {"WindowRightNegative", [](Request& r) { r.set_window_right(-2); },
       kInvalid, "window_right", "-2", "at least 0"},
      {"SlopesOfOtherHeads", [](Request& r) { r.add_alibi_slopes(1); },
       kInvalid, "alibi_slopes", "1 entries", "4 entries (heads of q), or 2"},
      {"SlopesOfAnotherBatch",
       [](Request& r) {
         for (int i = 0; i < 12; ++i) r.add_alibi_slopes(1);
       },
       kInvalid, "alibi_slopes", "12 entries", "4 entries"},
      {"SlopeNan",
       [](Request& r) {
         for (int i = 0; i < 4; ++i) r.add_alibi_slopes(i == 2 ? kNan : 1);
       },
       kInvalid, "alibi_slopes[2]", "nan", "finite"},
      {"SlopeInf",
       [](Request& r) {
         for (int i = 0; i < 8; ++i) r.add_alibi_slopes(i == 7 ? -kInf : 1);
       },
       kInvalid, "alibi_slopes[7]", "-inf", "finite"},
      {"SinksOfOtherHeads", [](Request& r) { r.add_sinks(0); }, kInvalid,
       "sinks", "1 entries", "4 entries"},
      {"SinkNan",
       [](Request& r) {
         for (int i = 0; i < 4; ++i) r.add_sinks(i == 0 ? kNan : 0);
       },
       kInvalid, "sinks[0]", "nan", "finite or -inf"},
      {"SinkInf",
       [](Request& r) {
         for (int i = 0; i < 4; ++i) r.add_sinks(i == 3 ? kInf : -kInf);
       },
       kInvalid, "sinks[3]", "inf", "finite or -inf"},
      {"EmptyMask", [](Request& r) { r.mutable_mask(); }, kInvalid,
       "mask.dtype", "UNSPECIFIED", "BOOL, BOOL_BITS, FP32"},
      {"MaskOfAnotherHalf",
       [](Request& r) {
         SetMask(r, v1::DATA_TYPE_BF16, {2, 4, 3, 4});
       },
       kInvalid, "mask.dtype", "BF16", "FP32"},
      {"MaskInFp8",
       [](Request& r) {
         SetMask(r, v1::DATA_TYPE_BOOL, {2, 4, 3, 4});
         r.mutable_mask()->set_dtype(v1::DATA_TYPE_FP8_E5M2);
       },
       kUnimplemented, "mask.dtype", "FP8_E5M2", "BOOL"},
      {"MaskOfRankTwo",
       [](Request& r) {
         SetMask(r, v1::DATA_TYPE_BOOL, {3, 4});
       },
       kInvalid, "mask.shape", "2 dimensions",
       "[batch, heads, seqlen_q, seqlen_k]"},
      {"MaskInAnotherLayout",
       [](Request& r) {
         SetMask(r, v1::DATA_TYPE_BOOL, {2, 4, 3, 4});
         r.mutable_mask()->set_layout(v1::LAYOUT_BSHD);
       },
       kInvalid, "mask.layout", "1", "BHSD or unset"},
      {"MaskOfAnotherBatch",
       [](Request& r) {
         SetMask(r, v1::DATA_TYPE_BOOL, {3, 4, 3, 4});
       },
       kInvalid, "mask.shape[0]", "3", "2 (batch) or 1"},
      {"MaskOfKvHeads",
       [](Request& r) {
         SetMask(r, v1::DATA_TYPE_BOOL, {2, 2, 3, 4});
       },
       kInvalid, "mask.shape[1]", "2", "4 (heads of q) or 1"},
      {"MaskOfOtherRows",
       [](Request& r) {
         SetMask(r, v1::DATA_TYPE_FP32, {1, 1, 4, 4});
       },
       kInvalid, "mask.shape[2]", "4", "3 (seqlen_q) or 1"},
      {"MaskOfOneKey",
       [](Request& r) {
         SetMask(r, v1::DATA_TYPE_BOOL, {1, 1, 3, 1});
       },
       kInvalid, "mask.shape[3]", "1", "4 (seqlen_k)"},
      {"MaskWithoutBytes",
       [](Request& r) {
         SetMask(r, v1::DATA_TYPE_FP32, {1, 1, 3, 4});
         r.clear_mask_data();
       },
       kInvalid, "mask_data", "0 bytes", "exactly the 48 bytes"},
      {"MaskBitsWithBytes",
       [](Request& r) {
         SetMask(r, v1::DATA_TYPE_BOOL, {1, 1, 3, 4});
         r.mutable_mask()->set_dtype(v1::DATA_TYPE_BOOL_BITS);
       },
       kInvalid, "mask_data", "12 bytes", "exactly the 3 bytes"},
      {"MaskBitsAcrossBytes",
       [](Request& r) {
         SetMask(r, v1::DATA_TYPE_BOOL, {1, 1, 3, 4});
         r.mutable_mask()->set_dtype(v1::DATA_TYPE_BOOL_BITS);
         AddStrides(r.mutable_mask(), {12, 12, 4, 1});
       },
       kInvalid, "mask.strides[0]", "12", "a multiple of 8"},
  };
  table->insert(table->end(), cases.begin(), cases.end());
}

void AddQkvCases(Table* table) {
  const auto change = [](Request (*good)(), std::function<void(Request&)> f) {
    return [good, f = std::move(f)](Request& r) {
      r = good();
      f(r);
    };
  };
  Table cases = {
      {"QkvBesideQ",
       [](Request& r) { *r.mutable_qkv() = GoodQkvRequest().qkv(); }, kInvalid,
       "q", "set", "absent"},
      {"QkvBesideKeyBytes",
       change(GoodQkvRequest, [](Request& r) { r.set_k_data("x"); }), kInvalid,
       "k_data", "given", "absent"},
      {"QkvInBhsd",
       change(GoodQkvRequest,
              [](Request& r) { r.mutable_qkv()->set_layout(v1::LAYOUT_BHSD); }),
       kInvalid, "qkv.layout", "BHSD", "BSHD or THD"},
      {"QkvOfFour",
       change(GoodQkvRequest,
              [](Request& r) { r.mutable_qkv()->set_shape(2, 4); }),
       kInvalid, "qkv.shape[2]", "4", "3, for q, k and v"},
      {"QkvOfRankThree",
       change(
           GoodQkvRequest,
           [](Request& r) { r.mutable_qkv()->mutable_shape()->Truncate(3); }),
       kInvalid, "qkv.shape", "3 dimensions", "of 4"},
      {"QkvHeadDim300",
       change(GoodQkvRequest,
              [](Request& r) { r.mutable_qkv()->set_shape(4, 300); }),
       kInvalid, "qkv.shape[4]", "300", "1..256"},
      {"HeadCountsWithPlainQkv",
       change(GoodQkvRequest, [](Request& r) { r.set_num_q_heads(2); }),
       kInvalid, "num_q_heads", "2", "0 unless qkv"},
      {"HeadCountsWithoutQkv", [](Request& r) { r.set_num_kv_heads(2); },
       kInvalid, "num_kv_heads", "2", "0 unless qkv"},
      {"GroupedQkvWithoutHeadCounts",
       change(GoodGroupedQkvRequest, [](Request& r) { r.clear_num_q_heads(); }),
       kInvalid, "qkv.shape[2]", "8", "4, num_q_heads + 2 * num_kv_heads"},
      {"GroupedQkvOfOtherHeads",
       change(GoodGroupedQkvRequest, [](Request& r) { r.set_num_q_heads(6); }),
       kInvalid, "qkv.shape[2]", "8", "10, num_q_heads + 2 * num_kv_heads"},
      {"GroupedQkvThatDoesNotDivide",
       change(GoodGroupedQkvRequest,
              [](Request& r) {
                r.set_num_q_heads(2);
                r.set_num_kv_heads(3);
              }),
       kInvalid, "num_q_heads", "2", "a multiple of the 3 heads"},
      {"NegativeHeadCount",
       change(GoodGroupedQkvRequest,
              [](Request& r) { r.set_num_kv_heads(-1); }),
       kInvalid, "num_kv_heads", "-1", "0..65536"},
      {"HeadCountThatOverflows",
       change(GoodGroupedQkvRequest,
              [](Request& r) {
                r.set_num_q_heads(std::numeric_limits<int64_t>::max());
              }),
       kInvalid, "num_q_heads", "9223372036854775807", "max_heads"},
      {"QkvBytesMissing",
       change(GoodQkvRequest,
              [](Request& r) { r.mutable_qkv_data()->clear(); }),
       kInvalid, "qkv_data", "0 bytes", "exactly the 1152 bytes"},
  };
  table->insert(table->end(), cases.begin(), cases.end());
}

}  // namespace

void SetTensor(v1::DataType dtype, v1::Layout layout,
               const std::vector<int64_t>& shape, v1::TensorSpec* spec,
               std::string* data) {
  spec->Clear();
  spec->set_dtype(dtype);
  spec->set_layout(layout);
  int64_t bytes = BytesOf(dtype);
  for (const int64_t size : shape) {
    spec->add_shape(size);
    bytes *= size;
  }
  data->assign(static_cast<size_t>(bytes), '\0');
}

v1::AttendRequest GoodRequest() {
  Request r;
  r.set_request_id("good-1");
  SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_BSHD, {2, 3, 4, 8}, r.mutable_q(),
            r.mutable_q_data());
  SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_BSHD, {2, 4, 2, 8}, r.mutable_k(),
            r.mutable_k_data());
  SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_BSHD, {2, 4, 2, 8}, r.mutable_v(),
            r.mutable_v_data());
  r.set_causal(true);
  r.set_alignment(v1::CAUSAL_ALIGNMENT_BOTTOM_RIGHT);
  r.set_return_lse(true);
  FillWithValues(&r);
  return r;
}

v1::AttendRequest GoodPackedRequest() {
  Request r = GoodRequest();
  SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_THD, {6, 4, 8}, r.mutable_q(),
            r.mutable_q_data());
  SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_THD, {8, 2, 8}, r.mutable_k(),
            r.mutable_k_data());
  SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_THD, {8, 2, 8}, r.mutable_v(),
            r.mutable_v_data());
  for (const int32_t start : {0, 2, 6}) r.add_cu_seqlens_q(start);
  for (const int32_t start : {0, 3, 8}) r.add_cu_seqlens_k(start);
  FillWithValues(&r);
  return r;
}

v1::AttendRequest GoodQkvRequest() {
  Request r;
  r.set_request_id("good-qkv");
  SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_BSHD, {2, 3, 3, 2, 8},
            r.mutable_qkv(), r.mutable_qkv_data());
  FillWithValues(&r);
  return r;
}

v1::AttendRequest GoodGroupedQkvRequest() {
  Request r;
  r.set_request_id("good-gqa-qkv");
  SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_BSHD, {2, 3, 8, 8}, r.mutable_qkv(),
            r.mutable_qkv_data());
  r.set_num_q_heads(4);
  r.set_num_kv_heads(2);
  FillWithValues(&r);
  return r;
}

std::vector<MalformedRequest> MalformedRequests() {
  Table table;
  AddWireCases(&table);
  AddTextCases(&table);
  AddTypeCases(&table);
  AddShapeCases(&table);
  AddStrideAndByteCases(&table);
  AddLengthCases(&table);
  AddOptionCases(&table);
  AddQkvCases(&table);
  return table;
}

}  // namespace attendant::testing
