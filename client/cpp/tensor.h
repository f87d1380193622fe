// Tensors in host memory, as a caller hands them over and gets them back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

namespace attendant::client {

// Numbers are those of attendant.v1.DataType.
enum class DataType : int {
  kUnset = 0,
  kFloat32 = 1,
  kFloat16 = 2,
  kBFloat16 = 3,
  kBool = 6,      // masks: one byte an entry, 0 = drop
  kBoolBits = 7,  // masks: eight entries a byte, least significant bit first
};
// "fp32", "fp16", "bf16", "bool", "bool_bits"; "unset"; "?" for other numbers.
const char* Name(DataType dtype);

// Order of a tensor's dimensions; numbers are those of attendant.v1.Layout.
enum class Layout : int {
  kUnset = 0,
  kBSHD = 1,  // [batch, seqlen, heads, head_dim], flash-attn's
  kBHSD = 2,  // [batch, heads, seqlen, head_dim], PyTorch SDPA's
  kTHD = 3,   // [total tokens, heads, head_dim], flash-attn varlen's
};
const char* Name(Layout layout);  // "BSHD", "BHSD", "THD"; "unset"; "?"

// The caller's memory, not owned; it stays readable until the call returns.
struct TensorView {
  const void* data = nullptr;
  DataType dtype = DataType::kUnset;
  std::vector<int64_t> shape;  // elements, outermost first; 0 is legal
  // Elements, >= 0, one per dimension, innermost 1; empty = contiguous. Stride
  // 0 repeats. kBoolBits: entries, multiples of 8 outside the innermost.
  std::vector<int64_t> strides;

  // False for a tensor that was not given (no dtype).
  bool given() const { return dtype != DataType::kUnset; }
};

// An owned, contiguous tensor. Move-only. The memory may be the caller's own
// (AttendArgs::out), then `storage` is empty; by door "ipc" a GPU's too.
struct Tensor {
  DataType dtype = DataType::kUnset;
  std::vector<int64_t> shape;
  std::unique_ptr<std::byte[]> storage;
  std::byte* data = nullptr;
  int64_t num_bytes = 0;
  int cuda_device = -1;  // whose memory it is; -1 = the host's

  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data);
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data);
  }
  TensorView view() const { return {data, dtype, shape, {}}; }
};

// Product of the sizes. INVALID_ARGUMENT for a negative size or more than
// 2^58 elements.
absl::StatusOr<int64_t> NumElements(const std::vector<int64_t>& shape);
// Bytes that `elements` of `dtype` take (kBoolBits: whole bytes of one row).
int64_t NumBytes(DataType dtype, int64_t elements);
// Row-major strides; for kBoolBits every row starts on a byte of its own.
std::vector<int64_t> ContiguousStrides(DataType dtype,
                                       const std::vector<int64_t>& shape);
// Contents undefined. The first touch of much memory takes longer than a copy
// into it, so it comes in huge pages where the system lets a program ask.
std::unique_ptr<std::byte[]> NewTensorMemory(int64_t bytes);
// Contents undefined. Errors as NumElements.
absl::StatusOr<Tensor> AllocateTensor(DataType dtype,
                                      std::vector<int64_t> shape);

}  // namespace attendant::client
