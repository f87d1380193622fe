#include "kernels/sm90/tensor_map.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace attendant::kernels::sm90 {
namespace {

constexpr int64_t kElementBytes = 2;
constexpr int64_t kStrideBound = int64_t{1} << 40;

using EncodeFunction = CUresult (*)(CUtensorMap*, CUtensorMapDataType,
                                    cuuint32_t, void*, const cuuint64_t*,
                                    const cuuint64_t*, const cuuint32_t*,
                                    const cuuint32_t*, CUtensorMapInterleave,
                                    CUtensorMapSwizzle, CUtensorMapL2promotion,
                                    CUtensorMapFloatOOBfill);

EncodeFunction FindEncodeFunction() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result;
  constexpr unsigned kCudaVersion = 12000;
  if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                       kCudaVersion, cudaEnableDefault,
                                       &result) != cudaSuccess ||
      result != cudaDriverEntryPointSuccess) {
    return nullptr;
  }
  return reinterpret_cast<EncodeFunction>(function);
}

// A dimension the map walks: more than one index, and they differ.
bool IsWalked(int64_t extent, int64_t stride) {
  return extent > 1 && stride != 0;
}

std::string WhyNoStride(const char* name, const char* dimension, int64_t extent,
                        int64_t stride) {
  if (!IsWalked(extent, stride)) return {};
  const int64_t bytes = stride * kElementBytes;
  if (bytes > 0 && bytes % 16 == 0 && bytes < kStrideBound) return {};
  return absl::StrCat("needs strides that are multiples of 16 bytes: the ",
                      dimension, " stride of ", name, " is ", bytes);
}

}  // namespace

std::string WhyNoMap(const char* name, const InputTensor& tensor,
                     const MapExtents& extents) {
  const auto address = reinterpret_cast<uintptr_t>(tensor.data);
  if (address % 16 != 0) {
    return absl::StrCat("needs ", name, " aligned to 16 bytes");
  }
  if (extents.rows > 1 && tensor.row_stride == 0) {
    return absl::StrCat("has no row stride of 0 (", name, ")");
  }
  std::string why = WhyNoStride(name, "row", extents.rows, tensor.row_stride);
  if (why.empty()) {
    why = WhyNoStride(name, "head", extents.heads, tensor.head_stride);
  }
  if (why.empty()) {
    why = WhyNoStride(name, "batch", extents.batch, tensor.batch_stride);
  }
  return why;
}

CoordinateFactors FactorsOf(const InputTensor& tensor,
                            const MapExtents& extents) {
  return {IsWalked(extents.heads, tensor.head_stride),
          IsWalked(extents.batch, tensor.batch_stride)};
}

absl::Status EncodeMap(const InputTensor& tensor, DataType dtype,
                       const MapExtents& extents, int box_rows, L2Fetch fetch,
                       CUtensorMap* map, int box_heads) {
  static const EncodeFunction encode = FindEncodeFunction();
  if (encode == nullptr) {
    return absl::InternalError("the CUDA driver has no cuTensorMapEncodeTiled");
  }
  // A dimension that is not walked has one index; its stride means nothing.
  const auto extent_of = [](int64_t extent, int64_t stride) -> cuuint64_t {
    return IsWalked(extent, stride) ? extent : 1;
  };
  const auto stride_of = [](int64_t extent, int64_t stride) -> cuuint64_t {
    return IsWalked(extent, stride) ? stride * kElementBytes : 16;
  };
  const cuuint64_t sizes[4] = {
      static_cast<cuuint64_t>(extents.columns),
      extent_of(std::max<int64_t>(extents.rows, 1), tensor.row_stride),
      extent_of(extents.heads, tensor.head_stride),
      extent_of(extents.batch, tensor.batch_stride)};
  const cuuint64_t strides[3] = {stride_of(extents.rows, tensor.row_stride),
                                 stride_of(extents.heads, tensor.head_stride),
                                 stride_of(extents.batch, tensor.batch_stride)};
  const cuuint32_t box[4] = {64, static_cast<cuuint32_t>(box_rows),
                             static_cast<cuuint32_t>(box_heads), 1};
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  const CUresult result =
      encode(map,
             dtype == DataType::kBFloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                          : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
             4, const_cast<void*>(tensor.data), sizes, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             fetch == L2Fetch::kLine ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B
                                     : CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    return absl::InternalError(absl::StrCat("cuTensorMapEncodeTiled: error ",
                                            static_cast<int>(result)));
  }
  return absl::OkStatus();
}

}  // namespace attendant::kernels::sm90
