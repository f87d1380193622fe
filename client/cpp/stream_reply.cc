#include "client/cpp/stream_reply.h"

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/client_error.h"
#include "client/cpp/reply_decoder.h"

namespace attendant::client {
namespace {

using google::protobuf::io::CodedInputStream;
using Response = v1::AttendStreamResponse;
using Chunk = v1::TensorChunk;

constexpr uint32_t Tag(int field, uint32_t wire_type) {
  return static_cast<uint32_t>(field) << 3 | wire_type;
}

absl::Status Broken(const std::string& what) {
  return absl::InternalError(
      absl::StrCat("the server's reply breaks the contract: ", what));
}

// Reads a chunk's fields up to `end`; fields that a newer server may have added
// to it are passed over.
bool ParseChunk(CodedInputStream* input, int64_t end, StreamReply* reply) {
  Chunk* chunk = reply->part.mutable_chunk();
  while (input->CurrentPosition() < end) {
    const uint32_t tag = input->ReadTag();
    uint64_t value = 0;
    switch (tag) {
      case Tag(Chunk::kTensorFieldNumber, 0):
        if (!input->ReadVarint64(&value)) return false;
        chunk->set_tensor(static_cast<v1::StreamTensor>(value));
        break;
      case Tag(Chunk::kByteOffsetFieldNumber, 0):
        if (!input->ReadVarint64(&value)) return false;
        chunk->set_byte_offset(static_cast<int64_t>(value));
        break;
      case Tag(Chunk::kDataFieldNumber, 2): {
        uint32_t bytes = 0;
        if (!input->ReadVarint32(&bytes)) return false;
        reply->data_offset = input->CurrentPosition();
        reply->data_bytes = bytes;
        if (bytes > end - reply->data_offset ||
            !input->Skip(static_cast<int>(bytes))) {
          return false;
        }
        break;
      }
      default:
        return false;
    }
  }
  return true;
}

// Contiguous memory for what `spec` describes: `given`, or its own.
absl::StatusOr<Tensor> Memory(const std::string& name,
                              const v1::TensorSpec& spec,
                              std::span<std::byte> given) {
  absl::StatusOr<Tensor> tensor = EmptyTensor(name, spec);
  if (!tensor.ok()) return tensor;
  if (given.empty()) {
    tensor->storage = NewTensorMemory(tensor->num_bytes);
    tensor->data = tensor->storage.get();
  } else if (static_cast<int64_t>(given.size()) != tensor->num_bytes) {
    return InvalidField(name, absl::StrCat(given.size(), " bytes"),
                        absl::StrCat(tensor->num_bytes, " bytes"));
  } else {
    tensor->data = given.data();
  }
  return tensor;
}

}  // namespace

absl::StatusOr<StreamReply> ParseStreamReply(const grpc::ByteBuffer& message) {
  const absl::Status broken = Broken("a message that cannot be read");
  const size_t length = message.Length();
  if (length == 0 || length > INT_MAX) return broken;
  grpc::ByteBuffer readable = message;  // a reference, not a copy
  grpc::ProtoBufferReader reader(&readable);
  CodedInputStream input(&reader);
  const uint32_t tag = input.ReadTag();
  uint32_t bytes = 0;
  if (!input.ReadVarint32(&bytes)) return broken;
  const int64_t offset = input.CurrentPosition();
  if (offset + int64_t{bytes} != static_cast<int64_t>(length)) return broken;
  StreamReply reply;
  if (tag == Tag(Response::kChunkFieldNumber, 2)) {
    if (!ParseChunk(&input, static_cast<int64_t>(length), &reply)) {
      return broken;
    }
    return reply;
  }
  google::protobuf::Message* part = nullptr;
  if (tag == Tag(Response::kAcceptedFieldNumber, 2)) {
    part = reply.part.mutable_accepted();
  } else if (tag == Tag(Response::kFinalFieldNumber, 2)) {
    part = reply.part.mutable_final();
  }
  if (part == nullptr || !part->ParseFromCodedStream(&input)) return broken;
  return reply;
}

absl::Status StreamedAnswer::Prepare(const v1::UploadAccepted& accepted) {
  absl::StatusOr<Tensor> out = Memory("out", accepted.output(), args_.out);
  if (!out.ok()) return out.status();
  out_ = *std::move(out);
  if (accepted.has_lse() != args_.return_lse) {
    return Broken(args_.return_lse ? "it has no LSE" : "it has an LSE");
  }
  if (!args_.return_lse) return absl::OkStatus();
  absl::StatusOr<Tensor> lse = Memory("lse", accepted.lse(), args_.lse);
  if (!lse.ok()) return lse.status();
  lse_ = *std::move(lse);
  return absl::OkStatus();
}

absl::Status StreamedAnswer::Take(const grpc::ByteBuffer& message,
                                  const StreamReply& chunk) {
  const v1::StreamTensor name = chunk.part.chunk().tensor();
  const bool lse = name == v1::STREAM_TENSOR_LSE;
  if (!lse && name != v1::STREAM_TENSOR_OUTPUT) {
    return Broken("a chunk of another tensor");
  }
  const Tensor& tensor = lse ? lse_ : out_;
  const int64_t begin = chunk.part.chunk().byte_offset();
  if (begin < 0 || chunk.data_bytes > tensor.num_bytes ||
      begin > tensor.num_bytes - chunk.data_bytes) {
    return Broken("a chunk outside its tensor");
  }
  grpc::ByteBuffer readable = message;
  grpc::ProtoBufferReader reader(&readable);
  if (!reader.Skip(static_cast<int>(chunk.data_offset))) {
    return Broken("a chunk that cannot be read");
  }
  std::byte* to = tensor.data + begin;
  for (int64_t left = chunk.data_bytes; left > 0;) {
    const void* data = nullptr;
    int size = 0;
    if (!reader.Next(&data, &size)) return Broken("a chunk cut off");
    const int64_t count = std::min<int64_t>(size, left);
    std::memcpy(to, data, static_cast<size_t>(count));
    to += count;
    left -= count;
  }
  std::lock_guard lock(mutex_);
  taken_.push_back({lse, begin, begin + chunk.data_bytes});
  taken_bytes_ += chunk.data_bytes;
  return absl::OkStatus();
}

bool StreamedAnswer::is_whole() {
  std::lock_guard lock(mutex_);
  return taken_bytes_ == out_.num_bytes + lse_.num_bytes;
}

absl::StatusOr<AttendResult> StreamedAnswer::Finish(
    const v1::AttendResponse& final) {
  std::lock_guard lock(mutex_);
  std::sort(taken_.begin(), taken_.end(), [](const Taken& a, const Taken& b) {
    return std::pair(a.lse, a.begin) < std::pair(b.lse, b.begin);
  });
  int64_t ends[2] = {0, 0};
  for (const Taken& taken : taken_) {
    if (taken.begin != ends[taken.lse]) {
      return Broken("chunks with gaps or twice the same");
    }
    ends[taken.lse] = taken.end;
  }
  if (ends[0] != out_.num_bytes || ends[1] != lse_.num_bytes) {
    return Broken("chunks are missing");
  }
  AttendResult result = ResultOf(final);
  result.out = std::move(out_);
  result.lse = std::move(lse_);
  return result;
}

}  // namespace attendant::client
