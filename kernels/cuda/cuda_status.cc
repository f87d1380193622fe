#include "kernels/cuda/cuda_status.h"

#include <cstdio>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace attendant::kernels::cuda {
namespace {

constexpr char kStickyPayload[] = "attendant/cuda_sticky_error";

absl::StatusCode CodeOf(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return absl::StatusCode::kOk;
    case cudaErrorMemoryAllocation:
      return absl::StatusCode::kResourceExhausted;
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorStubLibrary:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorNoKernelImageForDevice:
      return absl::StatusCode::kFailedPrecondition;
    case cudaErrorInvalidValue:
    case cudaErrorInvalidDevice:
      return absl::StatusCode::kInvalidArgument;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

bool IsStickyError(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorExternalDevice:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

absl::Status CudaStatus(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return absl::OkStatus();
  // Told once, here: CUDA would repeat it to whoever launches next.
  (void)cudaGetLastError();
  absl::Status status(CodeOf(error),
                      absl::StrCat(what, ": ", cudaGetErrorName(error), ": ",
                                   cudaGetErrorString(error)));
  if (IsStickyError(error)) {
    status.SetPayload(kStickyPayload, absl::Cord(cudaGetErrorName(error)));
  }
  return status;
}

bool IsSticky(const absl::Status& status) {
  return status.GetPayload(kStickyPayload).has_value();
}

void LogCudaError(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();
  std::fprintf(stderr, "%s: %s: %s\n", what, cudaGetErrorName(error),
               cudaGetErrorString(error));
}

}  // namespace attendant::kernels::cuda
