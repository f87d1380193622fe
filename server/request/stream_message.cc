#include "server/request/stream_message.h"

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/request/bounds.h"
#include "server/request/errors.h"

namespace attendant::server {
namespace {

using google::protobuf::io::CodedInputStream;
using Request = v1::AttendStreamRequest;
using Response = v1::AttendStreamResponse;
using Chunk = v1::TensorChunk;

constexpr uint32_t kVarint = 0;
constexpr uint32_t kLengthDelimited = 2;
constexpr int64_t kMaxIdBytes = 64;

absl::Status Malformed(const std::string& field, const std::string& bound) {
  return InvalidField(field, "not readable", bound);
}

absl::Status Unknown(const std::string& prefix, int number) {
  return UnimplementedField(
      absl::StrCat(prefix, "#", number), absl::StrCat("field number ", number),
      "a field that this server knows (the caller may be newer)");
}

// Reads one field's tag; `prefix` names where in errors.
absl::Status ReadTag(CodedInputStream* input, const std::string& prefix,
                     int* number, uint32_t* wire_type) {
  uint64_t tag = 0;
  if (!input->ReadVarint64(&tag) || tag > UINT32_MAX || tag >> 3 == 0) {
    return Malformed(prefix.empty() ? "message" : prefix, "a field's tag");
  }
  *number = static_cast<int>(tag >> 3);
  *wire_type = static_cast<uint32_t>(tag & 7);
  return absl::OkStatus();
}

// Reads the length of a field that must end by `end`.
absl::Status ReadLength(CodedInputStream* input, const std::string& field,
                        int64_t end, int64_t* bytes) {
  uint64_t size = 0;
  if (!input->ReadVarint64(&size)) return Malformed(field, "a length");
  const int64_t left = end - input->CurrentPosition();
  if (left < 0 || size > static_cast<uint64_t>(left)) {
    return InvalidField(
        field, absl::StrCat(size, " bytes long"),
        absl::StrCat("at most the ", left, " bytes left in the message"));
  }
  *bytes = static_cast<int64_t>(size);
  return absl::OkStatus();
}

absl::Status CheckWireType(const std::string& field, uint32_t is,
                           uint32_t must_be) {
  if (is == must_be) return absl::OkStatus();
  return InvalidField(field, absl::StrCat("of wire type ", is),
                      "of the type that the proto file gives it");
}

absl::Status ReadData(CodedInputStream* input, int64_t end,
                      StreamChunk* chunk) {
  RETURN_IF_ERROR(ReadLength(input, "chunk.data", end, &chunk->bytes));
  chunk->message_offset = input->CurrentPosition();
  if (!input->Skip(static_cast<int>(chunk->bytes))) {
    return Malformed("chunk.data", "readable");
  }
  return absl::OkStatus();
}

absl::StatusOr<StreamPart> ParseChunk(CodedInputStream* input, int64_t end) {
  StreamChunk chunk;
  while (input->CurrentPosition() < end) {
    int number = 0;
    uint32_t wire_type = 0;
    RETURN_IF_ERROR(ReadTag(input, "chunk", &number, &wire_type));
    uint64_t value = 0;
    switch (number) {
      case Chunk::kTensorFieldNumber:
        RETURN_IF_ERROR(CheckWireType("chunk.tensor", wire_type, kVarint));
        if (!input->ReadVarint64(&value)) {
          return Malformed("chunk.tensor", "a number");
        }
        chunk.tensor = static_cast<v1::StreamTensor>(value);
        break;
      case Chunk::kByteOffsetFieldNumber:
        RETURN_IF_ERROR(CheckWireType("chunk.byte_offset", wire_type, kVarint));
        if (!input->ReadVarint64(&value)) {
          return Malformed("chunk.byte_offset", "a number");
        }
        chunk.byte_offset = static_cast<int64_t>(value);
        break;
      case Chunk::kDataFieldNumber:
        RETURN_IF_ERROR(
            CheckWireType("chunk.data", wire_type, kLengthDelimited));
        RETURN_IF_ERROR(ReadData(input, end, &chunk));
        break;
      default:
        return Unknown("chunk.", number);
    }
  }
  if (chunk.bytes < 1 || chunk.bytes > kMaxChunkBytes) {
    return InvalidField(
        "chunk.data", absl::StrCat(chunk.bytes, " bytes"),
        absl::StrCat("1..", kMaxChunkBytes, " bytes (max_chunk_bytes)"));
  }
  return chunk;
}

absl::StatusOr<StreamPart> ParseJoin(CodedInputStream* input, int64_t end) {
  StreamJoin join;
  while (input->CurrentPosition() < end) {
    int number = 0;
    uint32_t wire_type = 0;
    RETURN_IF_ERROR(ReadTag(input, "join", &number, &wire_type));
    if (number != v1::JoinUpload::kUploadIdFieldNumber) {
      return Unknown("join.", number);
    }
    RETURN_IF_ERROR(
        CheckWireType("join.upload_id", wire_type, kLengthDelimited));
    int64_t bytes = 0;
    RETURN_IF_ERROR(ReadLength(input, "join.upload_id", end, &bytes));
    if (bytes > kMaxIdBytes) {
      return InvalidField("join.upload_id", absl::StrCat(bytes, " bytes long"),
                          "as UploadAccepted gave it");
    }
    if (!input->ReadString(&join.upload_id, static_cast<int>(bytes))) {
      return Malformed("join.upload_id", "readable");
    }
  }
  return join;
}

absl::StatusOr<StreamPart> ParseHeader(const grpc::ByteBuffer& message,
                                       int64_t offset, int64_t bytes) {
  constexpr const char* kDataFields[kNumTensorFields] = {
      "q_data", "k_data", "v_data", "qkv_data", "mask_data"};
  ASSIGN_OR_RETURN(ParsedRequest request,
                   ParseAttendRequestAt(message, offset, bytes));
  for (int i = 0; i < kNumTensorFields; ++i) {
    if (request.tensors[i].bytes >= 0) {
      return InvalidField(absl::StrCat("header.", kDataFields[i]),
                          absl::StrCat(request.tensors[i].bytes, " bytes"),
                          "absent: tensors come in chunks");
    }
    request.tensors[i].bytes = kInChunks;
  }
  return StreamHeader{std::move(request)};
}

// What a message of this part may measure in all.
absl::Status CheckMessageBytes(int part, int64_t bytes) {
  const int64_t bound = part == Request::kHeaderFieldNumber
                            ? kMaxHeaderBytes + kMaxChunkOverhead
                            : kMaxChunkBytes + kMaxChunkOverhead;
  if (bytes <= bound) return absl::OkStatus();
  return InvalidField("message", absl::StrCat(bytes, " bytes"),
                      absl::StrCat("at most ", bound, " bytes"));
}

grpc::ByteBuffer EncodePart(int field, const google::protobuf::Message& part) {
  const std::string bytes = part.SerializeAsString();
  std::string text;
  AppendBytesTag(field, static_cast<int64_t>(bytes.size()), &text);
  const grpc::Slice slice(text + bytes);
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace

absl::StatusOr<StreamPart> ParseStreamRequest(const grpc::ByteBuffer& message) {
  const int64_t length = static_cast<int64_t>(message.Length());
  // Whatever it is: protobuf's readers count in 32 bits.
  RETURN_IF_ERROR(CheckMessageBytes(Request::kHeaderFieldNumber, length));
  if (length == 0) {
    return InvalidField("message", "empty", "one of header, join and chunk");
  }
  grpc::ByteBuffer readable = message;  // a reference, not a copy
  grpc::ProtoBufferReader reader(&readable);
  CodedInputStream input(&reader);
  int number = 0;
  uint32_t wire_type = 0;
  RETURN_IF_ERROR(ReadTag(&input, "", &number, &wire_type));
  const auto* field = Request::descriptor()->FindFieldByNumber(number);
  if (field == nullptr) return Unknown("", number);
  RETURN_IF_ERROR(CheckWireType(field->name(), wire_type, kLengthDelimited));
  RETURN_IF_ERROR(CheckMessageBytes(number, length));
  int64_t bytes = 0;
  RETURN_IF_ERROR(ReadLength(&input, field->name(), length, &bytes));
  const int64_t offset = input.CurrentPosition();
  if (offset + bytes != length) {
    return InvalidField("message",
                        absl::StrCat(length - offset - bytes,
                                     " bytes longer than its ", field->name()),
                        "one of header, join and chunk, alone");
  }
  switch (number) {
    case Request::kHeaderFieldNumber:
      return ParseHeader(message, offset, bytes);
    case Request::kJoinFieldNumber:
      return ParseJoin(&input, length);
    default:
      return ParseChunk(&input, length);
  }
}

absl::Status NoSuchUpload() {
  return WithDetail(
      absl::NotFoundError("join.upload_id names no upload under way"),
      "join.upload_id", "unknown", "the id of an upload under way");
}

grpc::ByteBuffer EncodeAccepted(const v1::UploadAccepted& accepted) {
  return EncodePart(Response::kAcceptedFieldNumber, accepted);
}

grpc::ByteBuffer EncodeFinal(const v1::AttendResponse& answer) {
  return EncodePart(Response::kFinalFieldNumber, answer);
}

grpc::ByteBuffer EncodeChunk(v1::StreamTensor tensor, int64_t byte_offset,
                             const std::shared_ptr<HostBlock>& block,
                             int64_t block_offset, int64_t bytes) {
  Chunk chunk;
  chunk.set_tensor(tensor);
  chunk.set_byte_offset(byte_offset);
  std::string inner = chunk.SerializeAsString();
  AppendBytesTag(Chunk::kDataFieldNumber, bytes, &inner);
  std::string text;
  AppendBytesTag(Response::kChunkFieldNumber,
                 static_cast<int64_t>(inner.size()) + bytes, &text);
  const grpc::Slice slices[] = {grpc::Slice(text + inner),
                                OwningSlice(block, block_offset, bytes)};
  return grpc::ByteBuffer(slices, 2);
}

}  // namespace attendant::server
