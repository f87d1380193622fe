#include "server/request/problem_validator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/reference/oracle.h"
#include "server/request/errors.h"
#include "tests/server/validate.h"
#include "tests/testing/malformed_requests.h"

namespace attendant::server {
namespace {

using attendant::testing::GoldenBytes;
using attendant::testing::GoodGroupedQkvRequest;
using attendant::testing::GoodPackedRequest;
using attendant::testing::GoodQkvRequest;
using attendant::testing::GoodRequest;
using attendant::testing::SetTensor;
using kernels::AttentionProblem;
using kernels::DataType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
  EXPECT_EQ(p.kernel, "cpu");
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

TEST(ValidateRequestTest, HalfInputsComputedInAnotherTypeAreRoundedOnce) {
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
  const auto request = Validate(wire);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ((*request)->problem.dtype, DataType::kFloat32);
  EXPECT_EQ((*request)->problem.output_dtype, DataType::kFloat32);
  EXPECT_EQ((*request)->narrow_output_to, DataType::kFloat16);
  EXPECT_EQ((*request)->output_spec.dtype(), v1::DATA_TYPE_FP16);
  EXPECT_EQ((*request)->output_bytes, 2 * 3 * 4 * 8 * 4);
  EXPECT_EQ((*request)->wire_output_bytes(), 2 * 3 * 4 * 8 * 2);
  EXPECT_EQ((*request)->images[0].block_bytes, 2 * 3 * 4 * 8 * 4);
  wire.set_output_dtype(v1::DATA_TYPE_FP32);
  EXPECT_EQ((*Validate(wire))->narrow_output_to, std::nullopt);
  wire.set_output_dtype(v1::DATA_TYPE_BF16);
  const absl::Status status = Validate(wire).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(DetailOf(status)->field(), "output_dtype");
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

TEST(ValidateRequestTest, ATensorsReachIsBoundedWhereverItLies) {
  v1::AttendRequest wire = GoodRequest();
  for (const int64_t stride :
       {int64_t{1} << 57, int64_t{32}, int64_t{8}, int64_t{1}}) {
    wire.mutable_q()->add_strides(stride);
  }
  Bounds bounds;
  bounds.max_regions = 1;
  bounds.max_request_bytes = INT64_MAX;
  EXPECT_THAT(std::string(Validate(wire, bounds).status().message()),
              HasSubstr("q.shape is [2, 3, 4, 8] with its strides, must be of "
                        "at most 288230376151711744 bytes"));
  wire.clear_q_data();
  wire.mutable_q()->mutable_region()->set_byte_length(
      ((int64_t{1} << 57) + 2 * 32 + 3 * 8 + 8) * 4);
  EXPECT_THAT(std::string(Validate(wire, bounds).status().message()),
              HasSubstr("q.shape"));
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
