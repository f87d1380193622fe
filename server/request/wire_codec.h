// ByteBuffer <-> AttendRequest / AttendResponse: with stream_message.h the only
// file that knows tensor bytes on the wire. A message is read twice: first
// everything but the tensor bytes (nothing large is copied, so a malformed
// request costs nothing), then, once validated and admitted, the tensor bytes
// straight into pool memory.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attendant/v1/attention.pb.h"
#include "kernels/base/data_type.h"
#include "server/request/bounds.h"
#include "server/request/host_memory.h"

namespace attendant::server {

// The `*_data` fields of AttendRequest, in the order of their numbers.
enum class TensorField : int { kQ, kK, kV, kQkv, kMask };
inline constexpr int kNumTensorFields = 5;

// ParsedRequest::Extent::bytes of a tensor whose bytes come in messages of
// their own: as many as its spec spans.
inline constexpr int64_t kInChunks = -2;

// A request whose tensor bytes are still in gRPC's slices.
struct ParsedRequest {
  v1::AttendRequest header;  // the `*_data` fields are empty
  struct Extent {
    int64_t offset = 0;  // in the message
    int64_t bytes = -1;  // -1 = the field is absent
  };
  // The last occurrence wins, as protobuf has it for singular fields.
  std::array<Extent, kNumTensorFields> tensors;
};

// Any field order parses; a field sent twice merges as protobuf merges it.
// Errors carry an ErrorDetail: INVALID_ARGUMENT (not a protobuf message,
// truncated, a field of the wrong wire type, more than kMaxHeaderBytes beside
// the tensors), UNIMPLEMENTED (an unknown field anywhere, with its number).
absl::StatusOr<ParsedRequest> ParseAttendRequest(
    const grpc::ByteBuffer& message);

// The same of an AttendRequest that lies in bytes [offset, offset + bytes) of
// another message; extents count from that message's start.
absl::StatusOr<ParsedRequest> ParseAttendRequestAt(
    const grpc::ByteBuffer& message, int64_t offset, int64_t bytes);

// OK, or what ParseAttendRequest says of the first field of `message`, at any
// depth, that this server does not know. For messages parsed by protobuf.
absl::Status CheckNoUnknownFields(const google::protobuf::Message& message);

// Copies message bytes [offset, offset + bytes) into `destination`,
// converting elements from `from` to `to` (16-bit narrowing rounds to nearest
// even; equal types are a plain copy of any number of bytes). Call for disjoint
// ranges on several threads at once; each call walks the message's slices from
// the start, so parts of a MiB and more are best. `from`'s size divides
// `bytes`; `destination` has room for bytes / SizeOf(from) * SizeOf(to).
// Errors: INVALID_ARGUMENT if the range is not within the message.
absl::Status CopyTensorBytes(const grpc::ByteBuffer& message, int64_t offset,
                             int64_t bytes, kernels::DataType from,
                             kernels::DataType to, std::byte* destination);

// Tag and length of a length-delimited field.
void AppendBytesTag(int field_number, int64_t bytes, std::string* out);

// Bytes [offset, offset + bytes) of `block` (bytes > 0) as a slice that keeps
// the block alive until gRPC drops it.
grpc::Slice OwningSlice(const std::shared_ptr<HostBlock>& block, int64_t offset,
                        int64_t bytes);

// A bytes field behind a message's text: [offset, offset + bytes) of a block.
struct TensorPart {
  int field_number = 0;
  int64_t offset = 0;
  int64_t bytes = 0;
};

// `text` is the serialised rest of a message; the parts follow as slices that
// own `block` (no copy), which returns to its pool when gRPC has sent the last
// byte, on any thread. An empty part is a field of no bytes (and needs no
// block).
grpc::ByteBuffer AppendTensors(std::string text,
                               std::shared_ptr<HostBlock> block,
                               const std::vector<TensorPart>& parts);

// `header` holds everything but output_data and lse_data, which follow as
// slices that own `block` (no copy): O at [0, output_bytes), LSE behind it at
// lse_offset; 0 bytes = left out (`block` may be null if both are). The block
// returns to its pool when gRPC has sent the last byte, on any thread.
grpc::ByteBuffer EncodeAttendResponse(const v1::AttendResponse& header,
                                      std::shared_ptr<HostBlock> block,
                                      int64_t output_bytes, int64_t lse_offset,
                                      int64_t lse_bytes);

}  // namespace attendant::server
