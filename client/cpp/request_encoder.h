// AttendArgs -> the bytes of an AttendRequest, tensors by reference.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/attend_args.h"
#include "client/cpp/borrowed_memory.h"
#include "client/cpp/tensor_bytes.h"

namespace attendant::client {

enum class TensorName : int { kQ, kK, kV, kQkv, kMask };

struct NamedTensor {
  TensorName field = TensorName::kQ;
  TensorBytes bytes;
};

// A request without its tensors' bytes.
struct EncodedHeader {
  std::string message;  // an AttendRequest
  std::vector<NamedTensor> tensors;
  int64_t tensor_bytes = 0;  // at most 2^62
};

// Errors: as BytesOf.
absl::StatusOr<EncodedHeader> EncodeHeader(const AttendArgs& args);

struct EncodedRequest {
  grpc::ByteBuffer message;
  int64_t num_bytes = 0;
  std::vector<NamedTensor> tensors;  // what the message's slices point into
};

// The message refers to the memory of `args` and of `tensors`; both stay until
// `borrowed` has everything back. Specs and options come first, tensor bytes
// last. Errors: INVALID_ARGUMENT above gRPC's 4 GiB.
absl::StatusOr<EncodedRequest> EncodeAttendRequest(EncodedHeader header,
                                                   BorrowedMemory& borrowed);

}  // namespace attendant::client
