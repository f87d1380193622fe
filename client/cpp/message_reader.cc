#include "client/cpp/message_reader.h"

#include <algorithm>
#include <cstring>

namespace attendant::client {
namespace {

constexpr int kVarint = 0;
constexpr int kFixed64 = 1;
constexpr int kLengthDelimited = 2;
constexpr int kFixed32 = 5;

}  // namespace

absl::StatusOr<MessageReader> MessageReader::Create(
    const grpc::ByteBuffer& message) {
  MessageReader reader;
  reader.message_ = message;
  if (message.Valid() && !reader.message_.Dump(&reader.slices_).ok()) {
    return absl::InternalError("gRPC gave a message that cannot be read");
  }
  for (const grpc::Slice& slice : reader.slices_) {
    if (slice.size() == 0) continue;
    reader.pieces_.push_back(
        {reader.num_bytes_,
         {reinterpret_cast<const std::byte*>(slice.begin()), slice.size()}});
    reader.num_bytes_ += static_cast<int64_t>(slice.size());
  }
  return reader;
}

size_t MessageReader::PieceAt(int64_t offset) const {
  const auto behind = std::upper_bound(
      pieces_.begin(), pieces_.end(), offset,
      [](int64_t value, const Piece& piece) { return value < piece.offset; });
  return static_cast<size_t>(behind - pieces_.begin()) - 1;
}

bool MessageReader::ReadByte(int64_t offset, uint8_t* byte) const {
  if (offset >= num_bytes_) return false;
  const Piece& piece = pieces_[PieceAt(offset)];
  *byte = static_cast<uint8_t>(
      piece.bytes[static_cast<size_t>(offset - piece.offset)]);
  return true;
}

bool MessageReader::ReadVarint(int64_t* offset, uint64_t* value) const {
  *value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    uint8_t byte;
    if (!ReadByte((*offset)++, &byte)) return false;
    *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) return true;
  }
  return false;
}

bool MessageReader::SkipValue(int wire_type, int64_t* offset,
                              Extent* value) const {
  uint64_t length = 0;
  switch (wire_type) {
    case kVarint:
      return ReadVarint(offset, &length);
    case kFixed64:
      length = 8;
      break;
    case kFixed32:
      length = 4;
      break;
    case kLengthDelimited:
      if (!ReadVarint(offset, &length)) return false;
      break;
    default:
      return false;
  }
  if (length > static_cast<uint64_t>(num_bytes_ - *offset)) return false;
  *value = {*offset, static_cast<int64_t>(length)};
  *offset += value->num_bytes;
  return true;
}

absl::StatusOr<MessageReader::Fields> MessageReader::Split(
    int first_apart) const {
  Fields fields;
  int64_t offset = 0;
  while (offset < num_bytes_) {
    const int64_t begin = offset;
    uint64_t tag;
    Extent value;
    if (!ReadVarint(&offset, &tag) || tag >> 32 != 0 || tag >> 3 == 0 ||
        !SkipValue(static_cast<int>(tag & 7), &offset, &value)) {
      return absl::InternalError("the reply is not a protobuf message");
    }
    const int field = static_cast<int>(tag >> 3);
    if (field >= first_apart && (tag & 7) == kLengthDelimited) {
      fields.set_apart[field] = value;
      continue;
    }
    const size_t old_size = fields.rest.size();
    fields.rest.resize(old_size + static_cast<size_t>(offset - begin));
    Copy({begin, offset - begin},
         reinterpret_cast<std::byte*>(fields.rest.data() + old_size));
  }
  return fields;
}

void MessageReader::Copy(const Extent& extent, std::byte* destination) const {
  if (extent.num_bytes == 0) return;
  int64_t offset = extent.offset;
  const int64_t end = extent.offset + extent.num_bytes;
  for (size_t p = PieceAt(offset); offset < end; ++p) {
    const Piece& piece = pieces_[p];
    const int64_t skip = offset - piece.offset;
    const int64_t count = std::min<int64_t>(
        static_cast<int64_t>(piece.bytes.size()) - skip, end - offset);
    std::memcpy(destination, piece.bytes.data() + skip,
                static_cast<size_t>(count));
    destination += count;
    offset += count;
  }
}

}  // namespace attendant::client
