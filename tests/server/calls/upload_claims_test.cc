#include "server/calls/upload_claims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>

#include "server/request/errors.h"
#include "tests/server/regions/fake_region.h"

namespace attendant::server {
namespace {

using ::testing::HasSubstr;

// Tensors of an upload: q of 64 bytes and k of 32, both fp16; a boolean mask of
// 5 bytes; v in a region.
class UploadClaimsTest : public ::testing::Test {
 protected:
  UploadClaimsTest() {
    AddTensor(TensorField::kQ, 64);
    AddTensor(TensorField::kK, 32);
    AddTensor(TensorField::kV, 128).place.region =
        std::make_shared<testing::FakeRegion>(128, &regions_);
    AddTensor(TensorField::kMask, 5).raw = true;
  }

  ValidatedRequest::Image& AddTensor(TensorField field, int64_t bytes) {
    ValidatedRequest::Image image;
    image.field = field;
    image.from = image.to = kernels::DataType::kFloat16;
    image.wire_bytes = bytes;
    return request_.images.emplace_back(image);
  }

  UploadClaims& claims() {
    if (claims_ == nullptr) claims_ = std::make_unique<UploadClaims>(request_);
    return *claims_;
  }
  absl::StatusOr<ChunkPlace> Claim(v1::StreamTensor tensor, int64_t offset,
                                   int64_t bytes) {
    return claims().Claim({tensor, offset, 0, bytes});
  }
  void ExpectTaken(v1::StreamTensor tensor, int64_t offset, int64_t bytes) {
    const auto place = Claim(tensor, offset, bytes);
    EXPECT_TRUE(place.ok()) << place.status();
  }
  // INVALID_ARGUMENT about `field`, saying `bound`.
  void ExpectRefused(const absl::Status& status, const std::string& field,
                     const std::string& bound) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    const auto detail = DetailOf(status);
    ASSERT_TRUE(detail.has_value());
    EXPECT_EQ(detail->field(), field);
    EXPECT_THAT(detail->bound(), HasSubstr(bound));
  }

  std::atomic<int> regions_ = 0;
  ValidatedRequest request_;
  std::unique_ptr<UploadClaims> claims_;
};

TEST_F(UploadClaimsTest, AChunkGoesToItsTensor) {
  const auto k = Claim(v1::STREAM_TENSOR_K, 8, 24);
  ASSERT_TRUE(k.ok()) << k.status();
  EXPECT_EQ(k->image, 1u);
  EXPECT_EQ(k->range.begin, 8);
  EXPECT_EQ(k->range.end, 32);
  const auto mask = Claim(v1::STREAM_TENSOR_MASK, 0, 5);
  ASSERT_TRUE(mask.ok()) << mask.status();
  EXPECT_EQ(mask->image, 3u);
}

TEST_F(UploadClaimsTest, WhatLiesInARegionIsNotWaitedFor) {
  EXPECT_EQ(claims().total_bytes(), 64 + 32 + 5);
  ExpectTaken(v1::STREAM_TENSOR_MASK, 0, 5);
  ExpectTaken(v1::STREAM_TENSOR_K, 0, 32);
  EXPECT_FALSE(claims().complete());
  ExpectTaken(v1::STREAM_TENSOR_Q, 32, 32);
  ExpectTaken(v1::STREAM_TENSOR_Q, 0, 32);
  EXPECT_TRUE(claims().complete());
  EXPECT_TRUE(claims().Gap().ok());
}

TEST_F(UploadClaimsTest, AnUploadWithoutBytesIsComplete) {
  request_.images.clear();
  AddTensor(TensorField::kQ, 0);
  EXPECT_TRUE(claims().complete());
  EXPECT_TRUE(claims().Gap().ok());
}

TEST_F(UploadClaimsTest, RefusesTensorsThatAreNotUploaded) {
  for (const auto tensor :
       {v1::STREAM_TENSOR_V, v1::STREAM_TENSOR_QKV, v1::STREAM_TENSOR_OUTPUT,
        v1::STREAM_TENSOR_LSE, v1::STREAM_TENSOR_UNSPECIFIED}) {
    SCOPED_TRACE(tensor);
    const absl::Status refused = Claim(tensor, 0, 2).status();
    ExpectRefused(refused, "chunk.tensor", "in no region");
    EXPECT_THAT(refused.message(), HasSubstr(v1::StreamTensor_Name(tensor)));
  }
}

TEST_F(UploadClaimsTest, ATensorOfANewerContractIsUnimplemented) {
  for (const int tensor : {99, INT32_MAX, INT32_MIN}) {
    const absl::Status refused =
        Claim(static_cast<v1::StreamTensor>(tensor), 0, 2).status();
    EXPECT_TRUE(absl::IsUnimplemented(refused)) << refused;
    EXPECT_THAT(refused.message(), HasSubstr(std::to_string(tensor)));
  }
}

TEST_F(UploadClaimsTest, RefusesBytesOutsideTheTensor) {
  const struct {
    int64_t offset, bytes;
  } outside[] = {{-2, 2},       {64, 2}, {62, 4}, {0, 66}, {INT64_MAX - 1, 2},
                 {INT64_MIN, 2}};
  for (const auto& [offset, bytes] : outside) {
    SCOPED_TRACE(offset);
    ExpectRefused(Claim(v1::STREAM_TENSOR_Q, offset, bytes).status(),
                  "chunk.byte_offset", "within the 64 bytes that q spans");
  }
  ExpectTaken(v1::STREAM_TENSOR_Q, 0, 64);
}

TEST_F(UploadClaimsTest, NoElementIsCutButOfABooleanMask) {
  ExpectRefused(Claim(v1::STREAM_TENSOR_Q, 1, 2).status(), "chunk.byte_offset",
                "whole elements of 2 bytes");
  ExpectRefused(Claim(v1::STREAM_TENSOR_Q, 0, 3).status(), "chunk.byte_offset",
                "whole elements of 2 bytes");
  ExpectTaken(v1::STREAM_TENSOR_MASK, 1, 3);
}

TEST_F(UploadClaimsTest, OfTwoChunksForTheSameBytesTheSecondFails) {
  ExpectTaken(v1::STREAM_TENSOR_Q, 16, 16);
  const absl::Status twice = Claim(v1::STREAM_TENSOR_Q, 8, 16).status();
  ExpectRefused(twice, "chunk.byte_offset", "not sent before, as [16, 24)");
  EXPECT_THAT(twice.message(), HasSubstr("[8, 24) of q"));
  // It took nothing, and k's bytes of the same numbers are others.
  ExpectTaken(v1::STREAM_TENSOR_Q, 8, 8);
  ExpectTaken(v1::STREAM_TENSOR_K, 8, 16);
}

TEST_F(UploadClaimsTest, AGapIsNamedByItsFirstBytes) {
  ExpectTaken(v1::STREAM_TENSOR_Q, 0, 64);
  ExpectTaken(v1::STREAM_TENSOR_K, 0, 8);
  ExpectTaken(v1::STREAM_TENSOR_K, 16, 8);
  const absl::Status gap = claims().Gap();
  ExpectRefused(gap, "k", "all of the 32 bytes");
  EXPECT_THAT(gap.message(), HasSubstr("16 bytes without [8, 16)"));
}

TEST_F(UploadClaimsTest, RunsThatLieApartAreBounded) {
  request_.images.clear();
  AddTensor(TensorField::kQ, int64_t{1} << 20);
  for (int64_t i = 0; i < 4096; ++i) {
    ASSERT_TRUE(Claim(v1::STREAM_TENSOR_Q, 4 * i, 2).ok()) << i;
  }
  ExpectTaken(v1::STREAM_TENSOR_Q, 2, 2);  // closes a gap
  ExpectTaken(v1::STREAM_TENSOR_Q, 4 * 4096, 2);
  ExpectRefused(Claim(v1::STREAM_TENSOR_Q, 4 * 4097, 2).status(),
                "chunk.byte_offset", "at most 4096 runs");
}

}  // namespace
}  // namespace attendant::server
