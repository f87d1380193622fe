// Streams that break the protocol of AttendStream, and what each is told.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "server/bounds.h"
#include "tests/server/served_engine.h"
#include "tests/testing/stream_call.h"

namespace attendant::testing {

using StreamMessages = std::vector<std::string>;

inline constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
inline constexpr auto kUnimplemented = grpc::StatusCode::UNIMPLEMENTED;
inline constexpr auto kNotFound = grpc::StatusCode::NOT_FOUND;

// q, k and v of 32 bytes each: 4 rows of 2 floats.
inline v1::AttendRequest StreamedRequest() { return MeanRequest(4, 2); }

inline std::string Header() {
  return HeaderOf(StreamedRequest()).SerializeAsString();
}

inline std::string HeaderWith(
    const std::function<void(v1::AttendRequest*)>& change) {
  v1::AttendStreamRequest message = HeaderOf(StreamedRequest());
  change(message.mutable_header());
  return message.SerializeAsString();
}

inline std::string Chunk(int tensor, int64_t offset, size_t bytes) {
  v1::AttendStreamRequest message;
  message.mutable_chunk()->set_tensor(static_cast<v1::StreamTensor>(tensor));
  message.mutable_chunk()->set_byte_offset(offset);
  message.mutable_chunk()->set_data(std::string(bytes, '\0'));
  return message.SerializeAsString();
}

inline std::string Join(const std::string& id) {
  v1::AttendStreamRequest message;
  message.mutable_join()->set_upload_id(id);
  return message.SerializeAsString();
}

struct MalformedStream {
  std::string name;
  StreamMessages messages;  // then a half-close
  grpc::StatusCode code;
  std::string field;  // exactly
  std::string value;  // part of it
  std::string bound;  // part of it
};

// Breaks of a message's own form.
inline std::vector<MalformedStream> MalformedMessages() {
  const std::string chunk = Chunk(1, 0, 32);
  return {
      {"nothing", {}, kInvalid, "stream", "without", "header or a join"},
      {"empty message", {""}, kInvalid, "message", "empty", "one of header"},
      {"no tag",
       {std::string("\x80", 1)},
       kInvalid,
       "message",
       "not readable",
       "tag"},
      {"tag beyond 32 bits",
       {"\xff\xff\xff\xff\xff\x01"},
       kInvalid,
       "message",
       "not readable",
       "tag"},
      {"field number 0",
       {std::string("\x02\x00", 2)},
       kInvalid,
       "message",
       "not readable",
       "tag"},
      {"unknown part",
       {"\x22\x01x"},
       kUnimplemented,
       "#4",
       "field number 4",
       "newer"},
      {"header of wire type 0",
       {std::string("\x08\x01", 2)},
       kInvalid,
       "header",
       "wire type 0",
       "proto file"},
      {"header of wire type 5",
       {std::string("\x0d\0\0\0\0", 5)},
       kInvalid,
       "header",
       "wire type 5",
       "proto file"},
      {"join of wire type 1",
       {std::string("\x11\0\0\0\0\0\0\0\0", 9)},
       kInvalid,
       "join",
       "wire type 1",
       "proto file"},
      {"a group",
       {std::string("\x0b\x0c", 2)},
       kInvalid,
       "header",
       "wire type 3",
       "proto file"},
      {"header without length",
       {"\x0a"},
       kInvalid,
       "header",
       "not readable",
       "length"},
      {"header longer than the message",
       {std::string("\x0a\x05\x08", 3)},
       kInvalid,
       "header",
       "5 bytes long",
       "1 bytes left"},
      {"chunk longer than the message",
       {Header(), std::string("\x1a\x7f", 2)},
       kInvalid,
       "chunk",
       "127 bytes long",
       "0 bytes left"},
      {"two headers in a message",
       {Header() + Header()},
       kInvalid,
       "message",
       "longer than its header",
       "alone"},
      {"header and chunk in a message",
       {Header() + chunk},
       kInvalid,
       "message",
       "longer than its header",
       "alone"},
      {"two chunks in a message",
       {Header(), chunk + chunk},
       kInvalid,
       "message",
       "longer than its chunk",
       "alone"},
      {"unknown field of a chunk",
       {Header(), std::string("\x1a\x02\x20\x01", 4)},
       kUnimplemented,
       "chunk.#4",
       "field number 4",
       "newer"},
      {"unknown field of a join",
       {std::string("\x12\x02\x10\x01", 4)},
       kUnimplemented,
       "join.#2",
       "field number 2",
       "newer"},
      {"tensor of wire type 2",
       {Header(), std::string("\x1a\x02\x0a\x00", 4)},
       kInvalid,
       "chunk.tensor",
       "wire type 2",
       "proto file"},
      {"offset of wire type 5",
       {Header(), std::string("\x1a\x05\x15\0\0\0\0", 7)},
       kInvalid,
       "chunk.byte_offset",
       "wire type 5",
       "proto file"},
      {"data of wire type 0",
       {Header(), std::string("\x1a\x03\xc8\x3e\x01", 5)},
       kInvalid,
       "chunk.data",
       "wire type 0",
       "proto file"},
      {"data longer than its chunk",
       {Header(), std::string("\x1a\x04\xca\x3e\x09x", 6)},
       kInvalid,
       "chunk.data",
       "9 bytes long",
       "1 bytes left"},
      {"tensor cut off",
       {Header(), std::string("\x1a\x02\x08\x80", 4)},
       kInvalid,
       "chunk.tensor",
       "not readable",
       "number"},
      {"upload_id of wire type 0",
       {std::string("\x12\x02\x08\x01", 4)},
       kInvalid,
       "join.upload_id",
       "wire type 0",
       "proto file"},
      {"upload_id of 65 bytes",
       {Join(std::string(65, 'a'))},
       kInvalid,
       "join.upload_id",
       "65 bytes long",
       "UploadAccepted"},
  };
}

// Breaks of the order and of what chunks cover.
inline std::vector<MalformedStream> MalformedOrders() {
  const std::string header = Header();
  const std::string q = Chunk(1, 0, 32), k = Chunk(2, 0, 32),
                    v = Chunk(3, 0, 32);
  const auto too_large = static_cast<size_t>(server::kMaxChunkBytes) + 1;
  return {
      {"a chunk first", {q}, kInvalid, "message", "a chunk", "first a header"},
      {"header twice",
       {header, header},
       kInvalid,
       "message",
       "a second header or join",
       "first"},
      {"header, then join",
       {header, Join("0123456789abcdef")},
       kInvalid,
       "message",
       "a second header or join",
       "first"},
      {"foreign id", {Join("0123456789abcdef")}, kNotFound, "", "", ""},
      {"no id", {Join("")}, kNotFound, "", "", ""},
      {"no chunk at all", {header}, kInvalid, "q", "0 bytes", "32 bytes"},
      {"one tensor is missing",
       {header, q, v},
       kInvalid,
       "k",
       "0 bytes",
       "32 bytes"},
      {"a gap",
       {header, q, k, Chunk(3, 0, 8), Chunk(3, 16, 16)},
       kInvalid,
       "v",
       "without [8, 16)",
       "all of the 32 bytes"},
      {"the end is missing",
       {header, Chunk(1, 0, 28), k, v},
       kInvalid,
       "q",
       "without [28, 32)",
       "all of the 32 bytes"},
      {"the same twice",
       {header, q, q},
       kInvalid,
       "chunk.byte_offset",
       "[0, 32) of q",
       "[0, 32) were"},
      {"overlap from behind",
       {header, Chunk(1, 0, 16), Chunk(1, 12, 16)},
       kInvalid,
       "chunk.byte_offset",
       "[12, 28) of q",
       "[12, 16) were"},
      {"overlap from before",
       {header, Chunk(1, 16, 16), Chunk(1, 0, 20)},
       kInvalid,
       "chunk.byte_offset",
       "[0, 20) of q",
       "[16, 20) were"},
      {"beyond the tensor",
       {header, Chunk(1, 32, 4)},
       kInvalid,
       "chunk.byte_offset",
       "32, with 4 bytes of q",
       "32 bytes that q spans"},
      {"across the tensor's end",
       {header, Chunk(1, 16, 20)},
       kInvalid,
       "chunk.byte_offset",
       "16, with 20 bytes of q",
       "32 bytes"},
      {"larger than the tensor",
       {header, Chunk(1, 0, 36)},
       kInvalid,
       "chunk.byte_offset",
       "36 bytes of q",
       "32 bytes"},
      {"negative offset",
       {header, Chunk(1, -4, 8)},
       kInvalid,
       "chunk.byte_offset",
       "-4, with 8",
       "32 bytes"},
      {"offset near 2^63",
       {header, Chunk(1, INT64_MAX, 8)},
       kInvalid,
       "chunk.byte_offset",
       "9223372036854775807",
       "32 bytes"},
      {"offset inside an element",
       {header, Chunk(1, 2, 4)},
       kInvalid,
       "chunk.byte_offset",
       "2, with 4",
       "whole elements of 4"},
      {"half an element",
       {header, Chunk(1, 0, 6)},
       kInvalid,
       "chunk.byte_offset",
       "0, with 6",
       "whole elements of 4"},
      {"no data",
       {header, Chunk(1, 0, 0)},
       kInvalid,
       "chunk.data",
       "0 bytes",
       "max_chunk_bytes"},
      {"too much data",
       {header, Chunk(1, 0, too_large)},
       kInvalid,
       "chunk.data",
       std::to_string(too_large),
       "max_chunk_bytes"},
      {"no tensor",
       {header, Chunk(0, 0, 4)},
       kInvalid,
       "chunk.tensor",
       "UNSPECIFIED",
       "input tensor"},
      {"a tensor of the answer",
       {header, Chunk(6, 0, 4)},
       kInvalid,
       "chunk.tensor",
       "OUTPUT",
       "input tensor"},
      {"a tensor that the request has not",
       {header, Chunk(5, 0, 4)},
       kInvalid,
       "chunk.tensor",
       "MASK",
       "input tensor"},
      {"packed bytes of separate tensors",
       {header, Chunk(4, 0, 4)},
       kInvalid,
       "chunk.tensor",
       "QKV",
       "input tensor"},
      {"unknown tensor",
       {header, Chunk(9, 0, 4)},
       kUnimplemented,
       "chunk.tensor",
       "9",
       "input tensor"},
      {"tensor number -1",
       {header, Chunk(-1, 0, 4)},
       kUnimplemented,
       "chunk.tensor",
       "-1",
       "input tensor"},
      {"header with q_data",
       {HeaderWith([](auto* r) { r->set_q_data("1234"); })},
       kInvalid,
       "header.q_data",
       "4 bytes",
       "chunks"},
      {"header with mask_data",
       {HeaderWith([](auto* r) { r->set_mask_data("1"); })},
       kInvalid,
       "header.mask_data",
       "1 bytes",
       "chunks"},
      {"header of another shape",
       {HeaderWith([](auto* r) { r->mutable_k()->set_shape(3, 3); })},
       kInvalid,
       "k.shape[3]",
       "3",
       "2"},
      {"empty header", {std::string("\x0a\x00", 2)}, kInvalid, "q", "", ""},
  };
}

}  // namespace attendant::testing
