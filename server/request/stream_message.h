// The messages of AttendStream on the wire: AttendStreamRequest parsed by hand,
// so that a chunk's bytes stay in gRPC's slices until they are copied to their
// place; AttendStreamResponse encoded around slices of the output block.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "attendant/v1/attention.pb.h"
#include "server/request/host_memory.h"
#include "server/request/wire_codec.h"

namespace attendant::server {

// The first message of an upload. Extents of tensors are kInChunks.
struct StreamHeader {
  ParsedRequest request;
};

// The first message of a further stream.
struct StreamJoin {
  std::string upload_id;
};

struct StreamChunk {
  v1::StreamTensor tensor = v1::STREAM_TENSOR_UNSPECIFIED;
  int64_t byte_offset = 0;     // in the tensor
  int64_t message_offset = 0;  // of the data
  int64_t bytes = 0;           // of the data
};

using StreamPart = std::variant<StreamHeader, StreamJoin, StreamChunk>;

// Errors carry an ErrorDetail: INVALID_ARGUMENT (no protobuf message, not
// exactly one part, a header with `*_data`, a chunk of more than
// max_chunk_bytes or of none, larger than any such message may be),
// UNIMPLEMENTED (an unknown field anywhere).
absl::StatusOr<StreamPart> ParseStreamRequest(const grpc::ByteBuffer& message);

// NOT_FOUND, of a join; it does not repeat the id.
absl::Status NoSuchUpload();

grpc::ByteBuffer EncodeAccepted(const v1::UploadAccepted& accepted);
grpc::ByteBuffer EncodeFinal(const v1::AttendResponse& answer);

// Bytes [block_offset, block_offset + bytes) of `block` (bytes > 0), which are
// [byte_offset, + bytes) of `tensor`. The message keeps the block alive.
grpc::ByteBuffer EncodeChunk(v1::StreamTensor tensor, int64_t byte_offset,
                             const std::shared_ptr<HostBlock>& block,
                             int64_t block_offset, int64_t bytes);

}  // namespace attendant::server
