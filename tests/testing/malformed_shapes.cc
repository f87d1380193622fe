#include <functional>
#include <limits>
#include <utility>

#include "tests/testing/malformed_tables.h"

namespace attendant::testing {
namespace {

// head_dim of q and k, bytes to match.
void SetHeadDim(Request& r, int64_t head_dim) {
  SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_BSHD, {2, 3, 4, head_dim},
            r.mutable_q(), r.mutable_q_data());
  SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_BSHD, {2, 4, 2, head_dim},
            r.mutable_k(), r.mutable_k_data());
}

}  // namespace

MalformedTable ShapeCases() {
  const auto shape = [](v1::TensorSpec* spec, int i, int64_t size) {
    spec->set_shape(i, size);
  };
  return {
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
      {"KeysExpandedWithoutEnd",
       [](Request& r) {
         for (v1::TensorSpec* spec :
              {r.mutable_q(), r.mutable_k(), r.mutable_v()}) {
           spec->set_shape(0, 1 << 12);
           spec->set_shape(2, 1);
           AddStrides(spec, {0, 8, 8, 1});
         }
         for (v1::TensorSpec* spec : {r.mutable_k(), r.mutable_v()}) {
           spec->set_shape(1, 1 << 28);
           spec->set_strides(1, 0);
         }
         r.mutable_q_data()->resize(3 * 8 * 4);
       },
       kInvalid, "k.shape", "seqlen 268435456", "max_expanded_bytes"},
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
}

MalformedTable StrideAndByteCases() {
  return {
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
}

MalformedTable QkvCases() {
  const auto change = [](Request (*good)(), std::function<void(Request&)> f) {
    return [good, f = std::move(f)](Request& r) {
      r = good();
      f(r);
    };
  };
  return {
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
}

}  // namespace attendant::testing
