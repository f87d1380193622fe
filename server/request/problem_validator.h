// AttendRequest -> AttentionProblem, or an error that names field, value,
// bound.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/attention.h"
#include "kernels/problem.h"
#include "server/request/bounds.h"
#include "server/request/tensor_place.h"
#include "server/request/wire_codec.h"

namespace attendant::server {

// On whose behalf a request is computed, as far as the queue cares.
struct Caller {
  std::string identity = "anonymous";
  double weight = 1;       // of its share of the device
  double queue_share = 1;  // of the queue's bounds that it may fill, (0, 1]
};

// A request that will be computed, before its tensors are anywhere. Immovable:
// problem's spans point into the vectors here.
struct ValidatedRequest {
  ValidatedRequest() = default;
  ValidatedRequest(const ValidatedRequest&) = delete;
  ValidatedRequest& operator=(const ValidatedRequest&) = delete;

  std::string request_id;
  // dtype is the compute dtype. Pointers are null; strides are those of the
  // images below. mask.data is null too.
  kernels::AttentionProblem problem;
  std::vector<float> alibi_slopes;
  std::vector<float> sinks;

  // What to copy where in the request's input block (offsets multiples of 256).
  struct Image {
    TensorField field;
    // Equal = a plain copy of any number of bytes (boolean masks too).
    kernels::DataType from = kernels::DataType::kFloat32;
    kernels::DataType to = kernels::DataType::kFloat32;
    bool raw = false;  // true = a boolean mask: bytes, not elements
    int64_t wire_bytes = 0;
    int64_t block_offset = 0;
    int64_t block_bytes = 0;
    TensorPlace place{};
  };
  std::vector<Image> images;
  // Offsets of q, k, v and mask in the input block (packed qkv: three views).
  int64_t q_offset = 0, k_offset = 0, v_offset = 0, mask_offset = 0;
  int64_t input_bytes = 0;  // of the whole input block

  // Output block: O contiguous in q's layout at output_offset, LSE at
  // lse_offset. 0 bytes of O and LSE mean that there is nothing to compute: do
  // not launch (batch * heads of such a request may be astronomic).
  int64_t output_bytes = 0;
  // Set: kernels write O in fp32, and the engine rounds it in place to this
  // 16-bit type, which no kernel writes beside the compute dtype.
  std::optional<kernels::DataType> narrow_output_to;
  int64_t output_offset = 0;
  int64_t lse_offset = 0;
  int64_t lse_bytes = 0;
  TensorPlace output_place, lse_place;
  // Ends of the blocks that only the device needs room for: the host's copies
  // of these tensors lie in regions.
  int64_t device_only_input_bytes = 0;
  int64_t device_only_output_bytes = 0;
  v1::TensorSpec output_spec;
  v1::TensorSpec lse_spec;  // empty if LSE was not asked for

  double flops = 0;
  int priority = 0;
  std::string ordering_key;
  Caller caller;
  // Set by the caller before admission: see AttentionJob::ranges.
  bool arrives_in_parts = false;

  // Of O as the caller gets it.
  int64_t wire_output_bytes() const {
    return narrow_output_to.has_value() ? output_bytes / 2 : output_bytes;
  }
  int64_t output_block_bytes() const {
    int64_t bytes = 0;
    if (output_place.kernel_memory == nullptr) {
      bytes = output_offset + output_bytes;
    }
    if (lse_place.kernel_memory == nullptr && lse_bytes > 0) {
      bytes = std::max(bytes, lse_offset + lse_bytes);
    }
    return bytes;
  }
  int64_t host_input_bytes() const {
    return input_bytes - device_only_input_bytes;
  }
  int64_t host_output_bytes() const {
    return output_block_bytes() - device_only_output_bytes;
  }
  // Where O and LSE are written, for a block at `output`.
  std::byte* OutputIn(std::byte* output) const {
    return output_place.kernel_memory != nullptr ? output_place.kernel_memory
                                                 : output + output_offset;
  }
  float* LseIn(std::byte* output) const {
    return reinterpret_cast<float*>(lse_place.kernel_memory != nullptr
                                        ? lse_place.kernel_memory
                                        : output + lse_offset);
  }
};

inline constexpr int64_t kBlockAlignment = 256;  // of images and tensors
inline int64_t AlignedToBlock(int64_t bytes) {
  return (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
}

// Appends an image to the input block; block_offset and block_bytes are set
// here. Returns the offset.
int64_t AddImage(ValidatedRequest::Image image, ValidatedRequest* request);

// Points the problem's q, k, v, mask into `input` and out, lse into `output`,
// which lie in the memory of the device that computes (or the host, for cpu),
// but for tensors that the kernel finds in regions.
kernels::AttentionProblem Placed(const ValidatedRequest& request,
                                 std::byte* input, std::byte* output);

// Errors carry an ErrorDetail payload (see server/request/errors.h):
// INVALID_ARGUMENT, UNIMPLEMENTED (dropout, fp8, enum values of a newer
// contract, a dtype `device` does not compute in, no kernel of `device` serves
// it). Costs no memory beyond what the request's own lists take, whatever its
// sizes say. Regions are not looked up here: see regions/request_regions.h.
absl::StatusOr<std::unique_ptr<ValidatedRequest>> ValidateRequest(
    const ParsedRequest& request, const Bounds& bounds,
    const kernels::DeviceProperties& device);

}  // namespace attendant::server
