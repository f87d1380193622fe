// The client's types as the kernels' oracle and rounding know them.
#pragma once

#include "client/cpp/tensor.h"
#include "kernels/base/data_type.h"

namespace attendant::client::cli {

// fp32 for every type but fp16 and bf16.
inline kernels::DataType ToKernelType(DataType dtype) {
  if (dtype == DataType::kFloat16) return kernels::DataType::kFloat16;
  if (dtype == DataType::kBFloat16) return kernels::DataType::kBFloat16;
  return kernels::DataType::kFloat32;
}

}  // namespace attendant::client::cli
