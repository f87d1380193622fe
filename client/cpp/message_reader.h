// Reads a protobuf message out of gRPC's slices, without joining them: the
// fields' tags and lengths, and large fields by their place.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace attendant::client {

// Sizes are 64-bit: protobuf's own streams stop at 2 GiB.
class MessageReader {
 public:
  // INTERNAL if gRPC can't show the message's slices. The reader holds a
  // reference of its own: the ByteBuffer goes last, after the slices.
  static absl::StatusOr<MessageReader> Create(const grpc::ByteBuffer& message);

  struct Extent {
    int64_t offset = 0;
    int64_t num_bytes = 0;
  };
  struct Fields {
    // Every field that was not set apart, as it stood on the wire.
    std::string rest;
    std::map<int, Extent> set_apart;  // the last occurrence wins
  };
  // Splits the message; length-delimited fields numbered >= `first_apart` are
  // set apart. INTERNAL for bytes that are no protobuf message.
  absl::StatusOr<Fields> Split(int first_apart) const;

  // The extent lies within the message (as Split gave it).
  void Copy(const Extent& extent, std::byte* destination) const;

  int64_t num_bytes() const { return num_bytes_; }

 private:
  struct Piece {
    int64_t offset;
    std::span<const std::byte> bytes;
  };
  bool ReadByte(int64_t offset, uint8_t* byte) const;
  bool ReadVarint(int64_t* offset, uint64_t* value) const;
  // Moves *offset behind the value of a field of this wire type.
  bool SkipValue(int wire_type, int64_t* offset, Extent* value) const;
  size_t PieceAt(int64_t offset) const;

  grpc::ByteBuffer message_;
  std::vector<grpc::Slice> slices_;
  std::vector<Piece> pieces_;
  int64_t num_bytes_ = 0;
};

}  // namespace attendant::client
