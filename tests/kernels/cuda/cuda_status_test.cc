#include "kernels/cuda/cuda_status.h"

#include <gmock/gmock.h>

namespace attendant::kernels::cuda {
namespace {

using ::testing::HasSubstr;

TEST(CudaStatusTest, SuccessIsOk) {
  EXPECT_TRUE(CudaStatus(cudaSuccess, "call").ok());
  EXPECT_FALSE(IsSticky(absl::OkStatus()));
}

TEST(CudaStatusTest, MessageNamesTheCallAndTheError) {
  const absl::Status status = CudaStatus(cudaErrorInvalidValue, "cudaMemcpy");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cudaMemcpy"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("cudaErrorInvalidValue"));
}

TEST(CudaStatusTest, OutOfMemoryMaySucceedLaterAndIsNotSticky) {
  const absl::Status status = CudaStatus(cudaErrorMemoryAllocation, "x");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(IsSticky(status));
}

TEST(CudaStatusTest, IllegalAddressAndLaunchFailureAreSticky) {
  EXPECT_TRUE(IsSticky(CudaStatus(cudaErrorIllegalAddress, "x")));
  EXPECT_TRUE(IsSticky(CudaStatus(cudaErrorLaunchFailure, "x")));
  EXPECT_TRUE(IsSticky(CudaStatus(cudaErrorECCUncorrectable, "x")));
}

TEST(CudaStatusTest, MacroReturnsTheStatusOfAFailedCall) {
  const auto fails = []() -> absl::Status {
    RETURN_IF_CUDA_ERROR(cudaErrorNoDevice);
    return absl::OkStatus();
  };
  EXPECT_EQ(fails().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace attendant::kernels::cuda
