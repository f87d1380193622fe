#include <limits>

#include "tests/testing/malformed_tables.h"

namespace attendant::testing {
MalformedTable LengthCases() {
  const auto packed = [](std::vector<int32_t> q, std::vector<int32_t> k) {
    return [q, k](Request& r) {
      r = GoodPackedRequest();
      r.mutable_cu_seqlens_q()->Assign(q.begin(), q.end());
      r.mutable_cu_seqlens_k()->Assign(k.begin(), k.end());
    };
  };
  return {
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
}

MalformedTable OptionCases() {
  return {
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
  };
}

MalformedTable MaskCases() {
  return {
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
}

}  // namespace attendant::testing
