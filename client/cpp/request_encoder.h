// AttendArgs -> the bytes of an AttendRequest, tensors by reference.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/attend_args.h"
#include "client/cpp/borrowed_memory.h"
#include "client/cpp/tensor_bytes.h"

namespace attendant::client {

struct EncodedRequest {
  grpc::ByteBuffer message;
  int64_t num_bytes = 0;
  std::vector<TensorBytes> tensors;  // what the message's slices point into
};

// The message refers to the memory of `args` and of `tensors`; both stay until
// `borrowed` has everything back. Specs and options come first, tensor bytes
// last. Errors: as BytesOf; INVALID_ARGUMENT above gRPC's 4 GiB.
absl::StatusOr<EncodedRequest> EncodeAttendRequest(const AttendArgs& args,
                                                   BorrowedMemory& borrowed);

}  // namespace attendant::client
