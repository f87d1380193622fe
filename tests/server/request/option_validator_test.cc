#include "server/request/option_validator.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "tests/server/validate.h"
#include "tests/testing/malformed_requests.h"

namespace attendant::server {
namespace {

using attendant::testing::GoodPackedRequest;
using attendant::testing::GoodRequest;
using attendant::testing::SetTensor;
using kernels::AttentionProblem;
using kernels::DataType;
using kernels::MaskKind;

TEST(OptionValidatorTest, OptionsKeepTheirPresence) {
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

// 1 / softcap would be infinite, and 0 times that NaN.
TEST(OptionValidatorTest, ASoftcapOfNearlyNothingCanBeDividedBy) {
  v1::AttendRequest wire = GoodRequest();
  for (const float cap : {std::numeric_limits<float>::denorm_min(), 1e-38F}) {
    wire.set_softcap(cap);
    const auto request = Validate(wire);
    ASSERT_TRUE(request.ok()) << request.status();
    EXPECT_GT((*request)->problem.softcap, 1e-19F);
    EXPECT_LT((*request)->problem.softcap, 1e-17F);
  }
  wire.set_softcap(0.25F);
  EXPECT_EQ((*Validate(wire))->problem.softcap, 0.25F);
}

TEST(OptionValidatorTest, SlopesAndSinksAreHeldByTheRequest) {
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

TEST(OptionValidatorTest, BooleanMasksTravelAsBytes) {
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

TEST(OptionValidatorTest, MaskOfBitsHasStridesInBytes) {
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

TEST(OptionValidatorTest, MaskInTheInputsDtypeFollowsTheCompute) {
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

TEST(OptionValidatorTest, ThdMaskHasTheLongestSequencesSizes) {
  v1::AttendRequest wire = GoodPackedRequest();
  SetTensor(v1::DATA_TYPE_BOOL, v1::LAYOUT_UNSPECIFIED, {2, 1, 4, 5},
            wire.mutable_mask(), wire.mutable_mask_data());
  const auto request = Validate(wire);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_FALSE((*request)->problem.mask.padded_positions);
  EXPECT_EQ((*request)->problem.mask.batch_stride, 20);
}

}  // namespace
}  // namespace attendant::server
