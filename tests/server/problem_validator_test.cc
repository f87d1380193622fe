#include "server/problem_validator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "kernels/reference/oracle.h"
#include "server/errors.h"
#include "tests/testing/malformed_requests.h"
#include "tests/testing/request_invariants.h"
#include "tests/testing/wire_bytes.h"

namespace attendant::server {
namespace {

using attendant::testing::GoldenBytes;
using attendant::testing::GoodGroupedQkvRequest;
using attendant::testing::GoodPackedRequest;
using attendant::testing::GoodQkvRequest;
using attendant::testing::GoodRequest;
using attendant::testing::MalformedRequest;
using attendant::testing::MalformedRequests;
using attendant::testing::OneSlice;
using attendant::testing::Parse;
using attendant::testing::SetTensor;
using kernels::AttentionProblem;
using kernels::DataType;
using kernels::MaskKind;
using kernels::SequenceBounds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr kernels::DeviceProperties kCpu;

// A request with its input block filled as the server fills it.
struct Loaded {
  std::unique_ptr<ValidatedRequest> request;
  std::vector<std::byte> input;
  std::vector<std::byte> output;
  AttentionProblem problem;
};

absl::StatusOr<std::unique_ptr<ValidatedRequest>> Validate(
    const v1::AttendRequest& request, const Bounds& bounds = {},
    const kernels::DeviceProperties& device = kCpu) {
  const auto parsed = Parse(request);
  if (!parsed.ok()) return parsed.status();
  return ValidateRequest(*parsed, bounds, device);
}

Loaded Load(const std::string& bytes) {
  Loaded loaded;
  const grpc::ByteBuffer message = OneSlice(bytes);
  const auto parsed = ParseAttendRequest(message);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  auto request = ValidateRequest(*parsed, Bounds(), kCpu);
  EXPECT_TRUE(request.ok()) << request.status();
  if (!request.ok()) return loaded;
  loaded.request = *std::move(request);
  loaded.input.resize(loaded.request->input_bytes, std::byte{0xff});
  loaded.output.resize(loaded.request->output_block_bytes());
  for (const ValidatedRequest::Image& image : loaded.request->images) {
    const auto& extent = parsed->tensors[static_cast<int>(image.field)];
    EXPECT_EQ(image.block_offset % 256, 0);
    EXPECT_LE(image.block_offset + image.block_bytes,
              loaded.request->input_bytes);
    EXPECT_TRUE(CopyTensorBytes(message, extent.offset, image.wire_bytes,
                                image.from, image.to,
                                loaded.input.data() + image.block_offset)
                    .ok());
  }
  loaded.problem =
      Placed(*loaded.request, loaded.input.data(), loaded.output.data());
  return loaded;
}

Loaded Load(const v1::AttendRequest& request) {
  return Load(request.SerializeAsString());
}

float At(const kernels::InputTensor& tensor, DataType dtype, int64_t b,
         int64_t row, int64_t head, int64_t d) {
  return kernels::LoadAsFloat(tensor.data, dtype,
                              b * tensor.batch_stride +
                                  row * tensor.row_stride +
                                  head * tensor.head_stride + d);
}

float FloatAt(const std::string& bytes, int64_t index) {
  float value = 0;
  std::memcpy(&value, &bytes[index * sizeof(float)], sizeof(value));
  return value;
}

class MalformedRequestTest : public ::testing::TestWithParam<MalformedRequest> {
};

TEST_P(MalformedRequestTest, IsRefusedWithFieldValueAndBound) {
  v1::AttendRequest request = GoodRequest();
  GetParam().mutate(request);
  const absl::Status status = Validate(request).status();
  EXPECT_EQ(status.code(), GetParam().code) << status;
  const auto detail = DetailOf(status);
  ASSERT_TRUE(detail.has_value()) << status;
  EXPECT_EQ(detail->field(), GetParam().field) << status;
  EXPECT_THAT(detail->value(), HasSubstr(GetParam().value)) << status;
  EXPECT_THAT(detail->bound(), HasSubstr(GetParam().bound)) << status;
  EXPECT_LT(ToGrpcStatus(status).error_message().size(), 600u);
}

INSTANTIATE_TEST_SUITE_P(All, MalformedRequestTest,
                         ::testing::ValuesIn(MalformedRequests()),
                         [](const auto& info) { return info.param.name; });

TEST(MalformedRequestsTest, AreManyAndNamedApart) {
  std::set<std::string> names;
  for (const MalformedRequest& request : MalformedRequests()) {
    EXPECT_TRUE(names.insert(request.name).second) << request.name;
  }
  EXPECT_GE(names.size(), 80u);
}

TEST(ValidateRequestTest, BshdBecomesTheProblem) {
  const auto request = Validate(GoodRequest());
  ASSERT_TRUE(request.ok()) << request.status();
  const AttentionProblem& p = (*request)->problem;
  EXPECT_EQ(p.dtype, DataType::kFloat32);
  EXPECT_EQ(p.output_dtype, DataType::kFloat32);
  EXPECT_EQ(p.batch, 2);
  EXPECT_EQ(p.num_q_heads, 4);
  EXPECT_EQ(p.num_kv_heads, 2);
  EXPECT_EQ(p.whole_num_q_heads, 4);
  EXPECT_EQ(p.whole_num_kv_heads, 2);
  EXPECT_EQ(p.head_dim, 8);
  EXPECT_EQ(p.head_dim_v, 8);
  EXPECT_EQ(p.rows_q, 3);
  EXPECT_EQ(p.q.batch_stride, 96);
  EXPECT_EQ(p.q.row_stride, 32);
  EXPECT_EQ(p.q.head_stride, 8);
  EXPECT_EQ(p.k.row_stride, 16);
  EXPECT_EQ(p.out.batch_stride, 96);
  EXPECT_EQ(p.out.row_stride, 32);
  EXPECT_EQ(p.out.head_stride, 8);
  EXPECT_EQ(p.lse_batch_stride, 12);
  EXPECT_EQ(p.lse_head_stride, 3);
  EXPECT_EQ(p.q.data, nullptr);
  EXPECT_EQ(p.out.data, nullptr);
  EXPECT_EQ(p.lse, nullptr);
  EXPECT_TRUE(p.causal);
  EXPECT_EQ(p.softmax_scale, 1.0f / std::sqrt(8.0f));
  ASSERT_EQ(p.sequences.size(), 1u);
  EXPECT_EQ(p.sequence(1).len_q, 3);
  EXPECT_EQ(p.sequence(1).len_kv, 4);
  EXPECT_EQ(p.sequence(1).diagonal_shift, 1);
  EXPECT_EQ(p.sequence(1).whole_len_q, 3);
  EXPECT_EQ((*request)->output_bytes, 2 * 3 * 4 * 8 * 4);
  EXPECT_EQ((*request)->lse_offset, 768);
  EXPECT_EQ((*request)->lse_bytes, 2 * 4 * 3 * 4);
  EXPECT_THAT((*request)->output_spec.shape(), ElementsAre(2, 3, 4, 8));
  EXPECT_EQ((*request)->output_spec.layout(), v1::LAYOUT_BSHD);
  EXPECT_THAT((*request)->lse_spec.shape(), ElementsAre(2, 4, 3));
  EXPECT_EQ((*request)->lse_spec.dtype(), v1::DATA_TYPE_FP32);
  EXPECT_EQ((*request)->flops, kernels::ForwardFlops(p));
}

TEST(ValidateRequestTest, GoldenRequestHasItsAnswerKnownByHand) {
  Loaded loaded = Load(GoldenBytes("attend_request.hex"));
  EXPECT_EQ(loaded.request->output_bytes, 8);
  EXPECT_EQ(loaded.request->lse_offset, 256);
  kernels::reference::Plain(loaded.problem);
  const auto* out = reinterpret_cast<const float*>(loaded.output.data());
  EXPECT_FLOAT_EQ(out[0], 1.5f);
  EXPECT_FLOAT_EQ(out[1], 3.0f);
  EXPECT_FLOAT_EQ(loaded.problem.lse[0], std::log(2.0f));
  EXPECT_FLOAT_EQ(loaded.problem.lse[1], std::log(3.0f));
}

TEST(ValidateRequestTest, BhsdIsTheSameTensorByStrides) {
  v1::AttendRequest bhsd = GoodRequest();
  SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_BHSD, {2, 4, 3, 8}, bhsd.mutable_q(),
            bhsd.mutable_q_data());
  SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_BHSD, {2, 2, 4, 8}, bhsd.mutable_k(),
            bhsd.mutable_k_data());
  SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_BHSD, {2, 2, 4, 5}, bhsd.mutable_v(),
            bhsd.mutable_v_data());
  const auto request = Validate(bhsd);
  ASSERT_TRUE(request.ok()) << request.status();
  const AttentionProblem& p = (*request)->problem;
  EXPECT_EQ(p.rows_q, 3);
  EXPECT_EQ(p.num_q_heads, 4);
  EXPECT_EQ(p.head_dim_v, 5);
  EXPECT_EQ(p.q.row_stride, 8);
  EXPECT_EQ(p.q.head_stride, 24);
  EXPECT_EQ(p.out.batch_stride, 60);
  EXPECT_EQ(p.out.head_stride, 15);
  EXPECT_EQ(p.out.row_stride, 5);
  EXPECT_THAT((*request)->output_spec.shape(), ElementsAre(2, 4, 3, 5));
  EXPECT_THAT((*request)->lse_spec.shape(), ElementsAre(2, 4, 3));
}

TEST(ValidateRequestTest, ThdLiesInOneRun) {
  const auto request = Validate(GoodPackedRequest());
  ASSERT_TRUE(request.ok()) << request.status();
  const AttentionProblem& p = (*request)->problem;
  EXPECT_EQ(p.batch, 2);
  EXPECT_EQ(p.rows_q, 6);
  EXPECT_EQ(p.q.batch_stride, 0);
  EXPECT_EQ(p.out.batch_stride, 0);
  EXPECT_EQ(p.out.row_stride, 32);
  EXPECT_EQ(p.lse_batch_stride, 0);
  EXPECT_EQ(p.lse_head_stride, 6);
  ASSERT_EQ(p.sequences.size(), 2u);
  EXPECT_EQ(p.sequences[1].q_begin, 2);
  EXPECT_EQ(p.sequences[1].len_q, 4);
  EXPECT_EQ(p.sequences[1].kv_begin, 3);
  EXPECT_EQ(p.sequences[1].len_kv, 5);
  EXPECT_EQ(p.sequences[1].diagonal_shift, 1);
  EXPECT_THAT((*request)->output_spec.shape(), ElementsAre(6, 4, 8));
  EXPECT_THAT((*request)->lse_spec.shape(), ElementsAre(4, 6));
  EXPECT_FALSE(kernels::HasUncoveredRows(p));
}

TEST(ValidateRequestTest, PlainQkvIsThreeViews) {
  const v1::AttendRequest wire = GoodQkvRequest();
  const Loaded loaded = Load(wire);
  const AttentionProblem& p = loaded.problem;
  EXPECT_EQ(loaded.request->images.size(), 1u);
  EXPECT_EQ(p.num_q_heads, 2);
  EXPECT_EQ(p.num_kv_heads, 2);
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t i = 0; i < 3; ++i) {
      for (int64_t h = 0; h < 2; ++h) {
        const auto expected = [&](int64_t which) {
          return FloatAt(wire.qkv_data(),
                         (((b * 3 + i) * 3 + which) * 2 + h) * 8 + 7);
        };
        EXPECT_EQ(At(p.q, p.dtype, b, i, h, 7), expected(0));
        EXPECT_EQ(At(p.k, p.dtype, b, i, h, 7), expected(1));
        EXPECT_EQ(At(p.v, p.dtype, b, i, h, 7), expected(2));
      }
    }
  }
  EXPECT_EQ(p.out.row_stride, 16);
}

TEST(ValidateRequestTest, GroupedQkvIsThreeViewsInAnyDtype) {
  v1::AttendRequest wire = GoodGroupedQkvRequest();
  wire.set_compute_dtype(v1::DATA_TYPE_BF16);
  const Loaded loaded = Load(wire);
  const AttentionProblem& p = loaded.problem;
  EXPECT_EQ(p.num_q_heads, 4);
  EXPECT_EQ(p.num_kv_heads, 2);
  EXPECT_EQ(p.dtype, DataType::kBFloat16);
  EXPECT_EQ(p.output_dtype, DataType::kFloat32);
  const auto expected = [&](int64_t b, int64_t i, int64_t head) {
    return kernels::BFloat16ToFloat(kernels::FloatToBFloat16(
        FloatAt(wire.qkv_data(), ((b * 3 + i) * 8 + head) * 8 + 5)));
  };
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t i = 0; i < 3; ++i) {
      EXPECT_EQ(At(p.q, p.dtype, b, i, 3, 5), expected(b, i, 3));
      EXPECT_EQ(At(p.k, p.dtype, b, i, 1, 5), expected(b, i, 5));
      EXPECT_EQ(At(p.v, p.dtype, b, i, 0, 5), expected(b, i, 6));
    }
  }
}

TEST(ValidateRequestTest, PackedThdQkvNeedsOneListOfLengths) {
  v1::AttendRequest wire;
  SetTensor(v1::DATA_TYPE_FP16, v1::LAYOUT_THD, {5, 3, 2, 8},
            wire.mutable_qkv(), wire.mutable_qkv_data());
  for (const int32_t start : {0, 0, 5}) wire.add_cu_seqlens_q(start);
  const auto request = Validate(wire);
  ASSERT_TRUE(request.ok()) << request.status();
  const AttentionProblem& p = (*request)->problem;
  EXPECT_EQ(p.batch, 2);
  EXPECT_EQ(p.sequences[0].len_kv, 0);
  EXPECT_EQ(p.sequences[1].len_kv, 5);
  EXPECT_EQ(p.k.row_stride, 48);
  EXPECT_EQ((*request)->k_offset, 32);
  EXPECT_EQ((*request)->v_offset, 64);
}

TEST(ValidateRequestTest, StridesAreTakenAsTheyAre) {
  v1::AttendRequest wire = GoodRequest();
  // Rows of q padded to 40 elements, k and v expanded over the batch.
  for (const int64_t s : {120, 40, 8, 1}) wire.mutable_q()->add_strides(s);
  wire.mutable_q_data()->resize((120 + 80 + 24 + 8) * 4);
  for (const int64_t s : {0, 16, 8, 1}) wire.mutable_k()->add_strides(s);
  wire.mutable_k_data()->resize(64 * 4);
  for (const int64_t s : {0, 16, 8, 1}) wire.mutable_v()->add_strides(s);
  wire.mutable_v_data()->resize(64 * 4);
  const Loaded loaded = Load(wire);
  const AttentionProblem& p = loaded.problem;
  EXPECT_EQ(p.q.row_stride, 40);
  EXPECT_EQ(At(p.q, p.dtype, 1, 2, 3, 7),
            FloatAt(wire.q_data(), 120 + 80 + 24 + 7));
  EXPECT_EQ(p.k.batch_stride, 0);
  EXPECT_EQ(p.out.row_stride, 32);
}

TEST(ValidateRequestTest, StridesOfSizeOneMeanNothing) {
  v1::AttendRequest wire = GoodRequest();
  SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_BSHD, {2, 1, 4, 8}, wire.mutable_q(),
            wire.mutable_q_data());
  for (const int64_t s : {32l, std::numeric_limits<int64_t>::max(), 8l, 1l}) {
    wire.mutable_q()->add_strides(s);
  }
  const auto request = Validate(wire);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ((*request)->problem.q.row_stride, 32);
}

TEST(ValidateRequestTest, UnequalLengthsGiveEverySequenceItsOwnDiagonal) {
  v1::AttendRequest wire = GoodRequest();
  for (const int64_t length : {1, 3}) wire.add_seqlens_q(length);
  for (const int64_t start : {2, 0}) wire.add_starts_q(start);
  for (const int64_t length : {4, 2}) wire.add_seqlens_k(length);
  const auto request = Validate(wire);
  ASSERT_TRUE(request.ok()) << request.status();
  const AttentionProblem& p = (*request)->problem;
  ASSERT_EQ(p.sequences.size(), 2u);
  EXPECT_EQ(p.sequences[0].q_begin, 2);
  EXPECT_EQ(p.sequences[0].len_q, 1);
  EXPECT_EQ(p.sequences[0].whole_len_q, 1);
  EXPECT_EQ(p.sequences[0].diagonal_shift, 3);
  EXPECT_EQ(p.sequences[1].diagonal_shift, -1);
  EXPECT_TRUE(kernels::HasUncoveredRows(p));
}

TEST(ValidateRequestTest, EqualLengthsNeedOneEntry) {
  v1::AttendRequest wire = GoodRequest();
  for (const int64_t length : {2, 2}) wire.add_seqlens_q(length);
  const auto request = Validate(wire);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ((*request)->problem.sequences.size(), 1u);
  EXPECT_EQ((*request)->problem.sequences[0].diagonal_shift, 2);
}

TEST(ValidateRequestTest, AlignmentMattersOnlyWhenTheDiagonalDoes) {
  v1::AttendRequest wire = GoodRequest();
  wire.set_causal(false);
  wire.clear_alignment();
  EXPECT_TRUE(Validate(wire).ok());
  wire.set_causal(true);
  for (const int64_t length : {3, 3}) wire.add_seqlens_k(length);
  EXPECT_TRUE(Validate(wire).ok());  // lengths are equal
  wire.clear_seqlens_k();
  wire.set_alignment(v1::CAUSAL_ALIGNMENT_TOP_LEFT);
  const auto request = Validate(wire);
  ASSERT_TRUE(request.ok());
  EXPECT_EQ((*request)->problem.sequences[0].diagonal_shift, 0);
}

TEST(ValidateRequestTest, OptionsKeepTheirPresence) {
  v1::AttendRequest wire = GoodRequest();
  const auto plain = Validate(wire);
  EXPECT_EQ((*plain)->problem.window_left, kernels::kWindowOpen);
  EXPECT_EQ((*plain)->problem.softcap, 0);
  wire.set_softmax_scale(0);
  wire.set_softcap(0);
  wire.set_window_left(0);
  wire.set_window_right(std::numeric_limits<int64_t>::max());
  wire.set_priority(-100);
  wire.set_ordering_key("key 1");
  const auto request = Validate(wire);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ((*request)->problem.softmax_scale, 0);
  EXPECT_EQ((*request)->problem.window_left, 0);
  // Cut to what no key is further away than.
  EXPECT_EQ((*request)->problem.window_right, 4);
  EXPECT_EQ((*request)->priority, -100);
  EXPECT_EQ((*request)->ordering_key, "key 1");
  EXPECT_EQ((*request)->request_id, "good-1");
  wire.set_softmax_scale(-2);
  EXPECT_EQ((*Validate(wire))->problem.softmax_scale, -2);
}

TEST(ValidateRequestTest, SlopesAndSinksAreHeldByTheRequest) {
  v1::AttendRequest wire = GoodRequest();
  for (int i = 0; i < 8; ++i) wire.add_alibi_slopes(static_cast<float>(i));
  for (int i = 0; i < 4; ++i) {
    wire.add_sinks(i == 2 ? -std::numeric_limits<float>::infinity() : 1.0f);
  }
  const auto request = Validate(wire);
  ASSERT_TRUE(request.ok()) << request.status();
  const AttentionProblem& p = (*request)->problem;
  EXPECT_EQ(p.alibi_slopes.data(), (*request)->alibi_slopes.data());
  EXPECT_EQ(p.alibi_batch_stride, 4);
  EXPECT_EQ(p.alibi_slopes[7], 7.0f);
  EXPECT_EQ(p.sinks.size(), 4u);
  wire.mutable_alibi_slopes()->Truncate(4);
  EXPECT_EQ((*Validate(wire))->problem.alibi_batch_stride, 0);
}

TEST(ValidateRequestTest, BooleanMasksTravelAsBytes) {
  v1::AttendRequest wire = GoodRequest();
  SetTensor(v1::DATA_TYPE_BOOL, v1::LAYOUT_UNSPECIFIED, {2, 1, 3, 4},
            wire.mutable_mask(), wire.mutable_mask_data());
  wire.mutable_mask_data()->at(23) = 7;
  const Loaded loaded = Load(wire);
  const kernels::MaskView& mask = loaded.problem.mask;
  EXPECT_EQ(mask.kind, MaskKind::kBoolBytes);
  EXPECT_EQ(mask.batch_stride, 12);
  EXPECT_EQ(mask.head_stride, 0);
  EXPECT_EQ(mask.row_stride, 4);
  EXPECT_TRUE(mask.padded_positions);
  EXPECT_EQ(static_cast<const char*>(mask.data)[23], 7);
}

TEST(ValidateRequestTest, MaskOfBitsHasStridesInBytes) {
  v1::AttendRequest wire = GoodRequest();
  SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_BSHD, {2, 11, 2, 8},
            wire.mutable_k(), wire.mutable_k_data());
  *wire.mutable_v() = wire.k();
  wire.set_v_data(wire.k_data());
  SetTensor(v1::DATA_TYPE_BOOL, v1::LAYOUT_UNSPECIFIED, {1, 4, 3, 11},
            wire.mutable_mask(), wire.mutable_mask_data());
  wire.mutable_mask()->set_dtype(v1::DATA_TYPE_BOOL_BITS);
  wire.mutable_mask_data()->resize(4 * 3 * 2);
  const auto request = Validate(wire);
  ASSERT_TRUE(request.ok()) << request.status();
  const kernels::MaskView& mask = (*request)->problem.mask;
  EXPECT_EQ(mask.kind, MaskKind::kBoolBits);
  EXPECT_EQ(mask.row_stride, 2);
  EXPECT_EQ(mask.head_stride, 6);
  EXPECT_EQ(mask.batch_stride, 0);
}

TEST(ValidateRequestTest, MaskInTheInputsDtypeFollowsTheCompute) {
  v1::AttendRequest wire = GoodRequest();
  for (v1::TensorSpec* spec :
       {wire.mutable_q(), wire.mutable_k(), wire.mutable_v()}) {
    spec->set_dtype(v1::DATA_TYPE_FP16);
  }
  for (std::string* data :
       {wire.mutable_q_data(), wire.mutable_k_data(), wire.mutable_v_data()}) {
    data->resize(data->size() / 2);
  }
  SetTensor(v1::DATA_TYPE_FP16, v1::LAYOUT_BHSD, {1, 1, 1, 4},
            wire.mutable_mask(), wire.mutable_mask_data());
  const uint16_t minus_two = kernels::FloatToFloat16(-2);
  std::memcpy(&wire.mutable_mask_data()->at(6), &minus_two, 2);
  Loaded loaded = Load(wire);
  EXPECT_EQ(loaded.problem.mask.dtype, DataType::kFloat16);
  EXPECT_EQ(loaded.problem.mask.row_stride, 0);
  EXPECT_EQ(loaded.problem.output_dtype, DataType::kFloat16);
  wire.set_compute_dtype(v1::DATA_TYPE_BF16);
  wire.set_output_dtype(v1::DATA_TYPE_BF16);
  loaded = Load(wire);
  EXPECT_EQ(loaded.problem.mask.kind, MaskKind::kAdditive);
  EXPECT_EQ(loaded.problem.mask.dtype, DataType::kFloat32);
  EXPECT_EQ(static_cast<const float*>(loaded.problem.mask.data)[3], -2.0f);
  EXPECT_EQ(loaded.request->output_bytes, 2 * 3 * 4 * 8 * 2);
}

TEST(ValidateRequestTest, ThdMaskHasTheLongestSequencesSizes) {
  v1::AttendRequest wire = GoodPackedRequest();
  SetTensor(v1::DATA_TYPE_BOOL, v1::LAYOUT_UNSPECIFIED, {2, 1, 4, 5},
            wire.mutable_mask(), wire.mutable_mask_data());
  const auto request = Validate(wire);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_FALSE((*request)->problem.mask.padded_positions);
  EXPECT_EQ((*request)->problem.mask.batch_stride, 20);
}

TEST(ValidateRequestTest, HalfInputsNeedAnOutputThatIsComputed) {
  v1::AttendRequest wire = GoodRequest();
  for (v1::TensorSpec* spec :
       {wire.mutable_q(), wire.mutable_k(), wire.mutable_v()}) {
    spec->set_dtype(v1::DATA_TYPE_FP16);
  }
  for (std::string* data :
       {wire.mutable_q_data(), wire.mutable_k_data(), wire.mutable_v_data()}) {
    data->resize(data->size() / 2);
  }
  wire.set_compute_dtype(v1::DATA_TYPE_FP32);
  const absl::Status status = Validate(wire).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(DetailOf(status)->field(), "output_dtype");
  wire.set_output_dtype(v1::DATA_TYPE_FP32);
  const auto request = Validate(wire);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ((*request)->problem.dtype, DataType::kFloat32);
  EXPECT_EQ((*request)->images[0].block_bytes, 2 * 3 * 4 * 8 * 4);
}

TEST(ValidateRequestTest, ZeroSizesAreLegal) {
  const auto with = [](int batch, int queries, int keys, int heads) {
    v1::AttendRequest r = GoodRequest();
    SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_BSHD, {batch, queries, heads, 8},
              r.mutable_q(), r.mutable_q_data());
    SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_BSHD, {batch, keys, heads, 8},
              r.mutable_k(), r.mutable_k_data());
    *r.mutable_v() = r.k();
    r.set_v_data(r.k_data());
    return Validate(r);
  };
  for (const auto& request : {with(0, 3, 4, 2).ok(), with(2, 0, 4, 2).ok(),
                              with(2, 3, 4, 0).ok(), with(0, 0, 0, 0).ok()}) {
    EXPECT_TRUE(request);
  }
  const auto no_keys = with(2, 3, 0, 2);
  ASSERT_TRUE(no_keys.ok()) << no_keys.status();
  EXPECT_EQ((*no_keys)->output_bytes, 2 * 3 * 2 * 8 * 4);
  EXPECT_EQ((*no_keys)->problem.sequence(0).len_kv, 0);
  EXPECT_EQ((*no_keys)->flops, 0);
  EXPECT_EQ((*with(2, 0, 4, 2))->output_block_bytes(), 0);
}

TEST(ValidateRequestTest, EmptyPackedBatchIsLegal) {
  v1::AttendRequest wire;
  for (v1::TensorSpec* spec :
       {wire.mutable_q(), wire.mutable_k(), wire.mutable_v()}) {
    std::string none;
    SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_THD, {0, 2, 8}, spec, &none);
  }
  wire.add_cu_seqlens_q(0);
  wire.add_cu_seqlens_k(0);
  const auto request = Validate(wire);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ((*request)->problem.batch, 0);
  EXPECT_EQ((*request)->output_block_bytes(), 0);
}

TEST(ValidateRequestTest, EveryHeadDimTo256IsTaken) {
  for (const int head_dim : {1, 7, 40, 80, 192, 255, 256}) {
    v1::AttendRequest wire = GoodRequest();
    SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_BSHD, {2, 3, 4, head_dim},
              wire.mutable_q(), wire.mutable_q_data());
    SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_BSHD, {2, 4, 2, head_dim},
              wire.mutable_k(), wire.mutable_k_data());
    EXPECT_TRUE(Validate(wire).ok()) << head_dim;
  }
}

// Sets a random number field of `message`, or of a message within, to a value
// that is likely to matter.
void SetSomeNumber(google::protobuf::Message* message, std::mt19937* random) {
  constexpr int64_t kValues[] = {0,
                                 0,
                                 1,
                                 1,
                                 2,
                                 2,
                                 3,
                                 4,
                                 5,
                                 6,
                                 8,
                                 16,
                                 24,
                                 64,
                                 96,
                                 -1,
                                 255,
                                 1 << 20,
                                 int64_t{1} << 40,
                                 std::numeric_limits<int64_t>::max()};
  const int64_t value = kValues[(*random)() % std::size(kValues)];
  const auto* field = message->GetDescriptor()->field(
      (*random)() % message->GetDescriptor()->field_count());
  const auto* reflection = message->GetReflection();
  using Field = google::protobuf::FieldDescriptor;
  const bool again = (*random)() % 2 == 0;
  switch (field->cpp_type()) {
    case Field::CPPTYPE_MESSAGE:
      // Regions and a mask or qkv from nothing are refused at once.
      if (reflection->HasField(*message, field)) {
        SetSomeNumber(reflection->MutableMessage(message, field), random);
      }
      return;
    case Field::CPPTYPE_INT64:
      if (!field->is_repeated()) {
        reflection->SetInt64(message, field, value);
      } else if (again || reflection->FieldSize(*message, field) == 0) {
        reflection->AddInt64(message, field, value);
      } else {
        const int size = reflection->FieldSize(*message, field);
        reflection->SetRepeatedInt64(message, field, (*random)() % size, value);
      }
      return;
    case Field::CPPTYPE_INT32:
      if (field->is_repeated()) {
        reflection->AddInt32(message, field, static_cast<int32_t>(value));
      }
      return;
    case Field::CPPTYPE_ENUM:
      reflection->SetEnumValue(message, field, (*random)() % 4);
      return;
    case Field::CPPTYPE_BOOL:
      reflection->SetBool(message, field, again);
      return;
    default:
      return;
  }
}

TEST(ValidateRequestTest, WhateverPassesStaysWithinItsBlocks) {
  std::mt19937 random(5);
  v1::AttendRequest masked = GoodRequest();
  SetTensor(v1::DATA_TYPE_BOOL, v1::LAYOUT_UNSPECIFIED, {2, 1, 3, 4},
            masked.mutable_mask(), masked.mutable_mask_data());
  v1::AttendRequest strided = GoodRequest();
  for (const int64_t stride : {96, 32, 8, 1}) {
    strided.mutable_q()->add_strides(stride);
  }
  for (const int64_t length : {3, 2}) strided.add_seqlens_q(length);
  const v1::AttendRequest bases[] = {GoodRequest(),    GoodPackedRequest(),
                                     GoodQkvRequest(), GoodGroupedQkvRequest(),
                                     masked,           strided};
  int passed = 0;
  for (int i = 0; i < 40'000; ++i) {
    v1::AttendRequest request = bases[random() % std::size(bases)];
    for (int n = static_cast<int>(random() % 4); n >= 0; --n) {
      SetSomeNumber(&request, &random);
    }
    const auto validated = attendant::testing::ValidateFitted(request, 1 << 20);
    if (!validated.ok()) {
      ASSERT_TRUE(DetailOf(validated.status()).has_value());
      continue;
    }
    ++passed;
    ASSERT_EQ(attendant::testing::InvariantViolation(**validated), "")
        << request.ShortDebugString().substr(0, 2000);
  }
  EXPECT_GT(passed, 5000);
}

TEST(ValidateRequestTest, BoundsAreTheServers) {
  Bounds bounds;
  bounds.max_head_dim = 7;
  EXPECT_THAT(std::string(Validate(GoodRequest(), bounds).status().message()),
              HasSubstr("1..7"));
  bounds = Bounds();
  bounds.max_response_bytes = 863;  // 768 of O and 96 of LSE
  EXPECT_THAT(std::string(Validate(GoodRequest(), bounds).status().message()),
              HasSubstr("max_response_bytes"));
  bounds.max_response_bytes = 864;
  EXPECT_TRUE(Validate(GoodRequest(), bounds).ok());
  bounds.max_request_bytes = 767;
  EXPECT_EQ(DetailOf(Validate(GoodRequest(), bounds).status())->field(),
            "q.shape");
  bounds = Bounds();
  bounds.max_seqlen = 4;
  EXPECT_EQ(DetailOf(Validate(GoodPackedRequest(), bounds).status())->field(),
            "cu_seqlens_k[2]");
  bounds = Bounds();
  bounds.max_batch = 1;
  EXPECT_EQ(DetailOf(Validate(GoodPackedRequest(), bounds).status())->field(),
            "cu_seqlens_q");
  bounds = Bounds();
  bounds.max_request_id_chars = 5;
  EXPECT_EQ(DetailOf(Validate(GoodRequest(), bounds).status())->field(),
            "request_id");
}

TEST(ValidateRequestTest, ADeviceWithoutKernelsServesNothing) {
  kernels::DeviceProperties old_gpu;
  old_gpu.compute_capability = 75;
  const absl::Status status = Validate(GoodRequest(), {}, old_gpu).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_TRUE(DetailOf(status).has_value());
}

#ifdef ATTENDANT_WITH_CUDA
kernels::DeviceProperties Hopper() {
  kernels::DeviceProperties hopper;
  hopper.compute_capability = 90;
  hopper.num_sms = 132;
  hopper.shared_memory_per_block_optin = 227 << 10;
  return hopper;
}

// Whatever the head size, the strides and the offsets of packed views, some
// kernel of a GPU serves it.
TEST(ValidateRequestTest, AGpuServesEveryShapeIn16Bits) {
  for (int head_dim = 1; head_dim <= 256; ++head_dim) {
    v1::AttendRequest wire = GoodGroupedQkvRequest();
    SetTensor(v1::DATA_TYPE_FP16, v1::LAYOUT_BSHD, {2, 3, 8, head_dim},
              wire.mutable_qkv(), wire.mutable_qkv_data());
    EXPECT_TRUE(Validate(wire, {}, Hopper()).ok()) << head_dim;
  }
  v1::AttendRequest masked = GoodPackedRequest();
  masked.set_compute_dtype(v1::DATA_TYPE_BF16);
  SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_UNSPECIFIED, {2, 1, 4, 5},
            masked.mutable_mask(), masked.mutable_mask_data());
  const auto request = Validate(masked, {}, Hopper());
  EXPECT_TRUE(request.ok()) << request.status();
}

TEST(ValidateRequestTest, Fp32OnAGpuIsRefusedWithTheWordsThatFixIt) {
  const kernels::DeviceProperties hopper = Hopper();
  v1::AttendRequest wire = GoodRequest();
  const absl::Status status = Validate(wire, {}, hopper).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(DetailOf(status)->field(), "compute_dtype");
  EXPECT_EQ(DetailOf(status)->value(), "unset (q.dtype is FP32)");
  EXPECT_THAT(DetailOf(status)->bound(), HasSubstr("BF16 or FP16"));
  wire.set_compute_dtype(v1::DATA_TYPE_BF16);
  EXPECT_TRUE(Validate(wire, {}, hopper).ok());
}
#endif

}  // namespace
}  // namespace attendant::server
