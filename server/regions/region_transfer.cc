#include "server/regions/region_transfer.h"

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/request/errors.h"
#include "server/request/wire_codec.h"

namespace attendant::server {
namespace {

using google::protobuf::io::CodedInputStream;

constexpr int64_t kMaxPartBytes = int64_t{64} << 20;
constexpr int64_t kMaxNameBytes = 64;
constexpr int64_t kReadChunkBytes = int64_t{1} << 20;

constexpr uint32_t Tag(int field, int wire_type) {
  return static_cast<uint32_t>(field << 3 | wire_type);
}

absl::Status CheckWithin(int64_t offset, int64_t bytes, int64_t size) {
  if (offset >= 0 && bytes >= 0 && offset <= size && bytes <= size - offset) {
    return absl::OkStatus();
  }
  return InvalidField("byte_offset",
                      absl::StrCat(offset, ", of ", bytes, " bytes"),
                      absl::StrCat("within the region's ", size, " bytes"));
}

void CountEnd(CallEnvironment* env, const grpc::Status& status) {
  env->metrics->Finished(Method::kRegions, status.error_code());
}

class WriteCall final : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  WriteCall(CallEnvironment* environment, grpc::CallbackServerContext* context,
            const absl::Status& access, std::string owner,
            grpc::ByteBuffer* reply)
      : env_(environment),
        context_(context),
        owner_(std::move(owner)),
        reply_(reply) {
    env_->metrics->Started(Method::kRegions);
    const absl::Status status = access.ok() ? CheckRegionOwner(owner_) : access;
    status.ok() ? StartRead(&message_) : End(status);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      return End(context_->IsCancelled()
                     ? absl::CancelledError("the caller is gone")
                     : absl::OkStatus());
    }
    const absl::Status status = Take();
    message_.Clear();
    if (!status.ok()) return End(status);
    StartRead(&message_);
  }
  void OnDone() override { delete this; }

 private:
  absl::Status Take() {
    ASSIGN_OR_RETURN(const WriteChunk chunk, ParseWriteChunk(message_));
    if (!chunk.name.empty()) {
      ASSIGN_OR_RETURN(RegionEntry entry,
                       env_->regions.Find(owner_, chunk.name, "name"));
      memory_ = std::move(entry.memory);
      offset_ = chunk.byte_offset;
      if (!memory_->writable()) {
        return InvalidField("name", "a read-only region", "a writable one");
      }
    } else if (memory_ == nullptr || chunk.byte_offset != 0) {
      return InvalidField("name", "unset",
                          "set, in the first chunk and where byte_offset is");
    }
    RETURN_IF_ERROR(CheckWithin(offset_, chunk.data_bytes, memory_->bytes()));
    RETURN_IF_ERROR(Copy(chunk));
    offset_ += chunk.data_bytes;
    written_ += chunk.data_bytes;
    return absl::OkStatus();
  }

  absl::Status Copy(const WriteChunk& chunk) {
    constexpr auto kBytes =
        kernels::DataType::kFloat32;  // from = to: no change
    if (memory_->host() != nullptr) {
      return CopyTensorBytes(message_, chunk.data_offset, chunk.data_bytes,
                             kBytes, kBytes, memory_->host() + offset_);
    }
    std::unique_ptr<std::byte[]> bytes(new std::byte[chunk.data_bytes + 1]);
    RETURN_IF_ERROR(CopyTensorBytes(message_, chunk.data_offset,
                                    chunk.data_bytes, kBytes, kBytes,
                                    bytes.get()));
    return memory_->Write(offset_, chunk.data_bytes, bytes.get());
  }

  void End(const absl::Status& status) {
    memory_.reset();
    v1::WriteResponse response;
    response.set_bytes_written(written_);
    const grpc::Slice slice(response.SerializeAsString());
    *reply_ = grpc::ByteBuffer(&slice, 1);
    const grpc::Status answer = ToGrpcStatus(status);
    CountEnd(env_, answer);
    Finish(answer);
  }

  CallEnvironment* const env_;
  grpc::CallbackServerContext* const context_;  // valid until OnDone
  const std::string owner_;
  grpc::ByteBuffer* const reply_;
  grpc::ByteBuffer message_;
  std::shared_ptr<RegionMemory> memory_;
  int64_t offset_ = 0;
  int64_t written_ = 0;
};

class ReadCall final : public grpc::ServerWriteReactor<v1::ReadResponse> {
 public:
  ReadCall(CallEnvironment* environment, const absl::Status& access,
           const std::string& owner, const v1::ReadRequest& request)
      : env_(environment),
        offset_(request.byte_offset()),
        left_(request.byte_length()) {
    env_->metrics->Started(Method::kRegions);
    const absl::Status status = access.ok() ? Begin(owner, request) : access;
    status.ok() ? Next() : End(status);
  }

  void OnWriteDone(bool ok) override {
    ok ? Next() : End(absl::CancelledError("the caller is gone"));
  }
  void OnDone() override { delete this; }

 private:
  absl::Status Begin(const std::string& owner, const v1::ReadRequest& request) {
    RETURN_IF_ERROR(CheckRegionOwner(owner));
    RETURN_IF_ERROR(CheckNoUnknownFields(request));
    ASSIGN_OR_RETURN(RegionEntry entry,
                     env_->regions.Find(owner, request.name(), "name"));
    memory_ = std::move(entry.memory);
    return CheckWithin(offset_, left_, memory_->bytes());
  }

  void Next() {
    const int64_t bytes = std::min(left_, kReadChunkBytes);
    if (bytes == 0) return End(absl::OkStatus());
    response_.set_byte_offset(offset_);
    std::string& data = *response_.mutable_data();
    data.resize(static_cast<size_t>(bytes));
    const absl::Status status = memory_->Read(
        offset_, bytes, reinterpret_cast<std::byte*>(data.data()));
    if (!status.ok()) return End(status);
    offset_ += bytes;
    left_ -= bytes;
    StartWrite(&response_);
  }

  void End(const absl::Status& status) {
    memory_.reset();
    const grpc::Status answer = ToGrpcStatus(status);
    CountEnd(env_, answer);
    Finish(answer);
  }

  CallEnvironment* const env_;
  std::shared_ptr<RegionMemory> memory_;
  int64_t offset_;
  int64_t left_;
  v1::ReadResponse response_;
};

}  // namespace

absl::StatusOr<WriteChunk> ParseWriteChunk(const grpc::ByteBuffer& message) {
  const auto length = static_cast<int64_t>(message.Length());
  if (length > kMaxPartBytes + kMaxNameBytes + 64) {
    return InvalidField("data",
                        absl::StrCat("in a message of ", length, " bytes"),
                        absl::StrCat("at most ", kMaxPartBytes, " bytes"));
  }
  WriteChunk chunk;
  if (length == 0) return chunk;
  // Reading does not change it.
  grpc::ProtoBufferReader reader(const_cast<grpc::ByteBuffer*>(&message));
  CodedInputStream input(&reader);
  const auto malformed = InvalidField("message", absl::StrCat(length, " bytes"),
                                      "a WriteRequest, data last");
  while (input.CurrentPosition() < length) {
    const uint32_t tag = input.ReadTag();
    uint32_t size = 0;
    uint64_t number = 0;
    if (tag == Tag(2, 0)) {
      if (!input.ReadVarint64(&number)) return malformed;
      chunk.byte_offset = static_cast<int64_t>(number);
    } else if (tag == Tag(1, 2)) {
      if (!input.ReadVarint32(&size) || size > kMaxNameBytes ||
          !input.ReadString(&chunk.name, static_cast<int>(size))) {
        return malformed;
      }
    } else if (tag == Tag(1001, 2)) {
      if (!input.ReadVarint32(&size)) return malformed;
      chunk.data_offset = input.CurrentPosition();
      chunk.data_bytes = size;
      if (size != length - chunk.data_offset) return malformed;
      return chunk;
    } else if (tag != 0 && tag >> 3 > 2 && tag >> 3 != 1001) {
      return UnimplementedField(absl::StrCat("#", tag >> 3), "field number",
                                "one that this server knows");
    } else {
      return malformed;
    }
  }
  return chunk;
}

grpc::ServerReadReactor<grpc::ByteBuffer>* StartRegionWrite(
    CallEnvironment* environment, grpc::CallbackServerContext* context,
    const absl::Status& access, const std::string& owner,
    grpc::ByteBuffer* reply) {
  return new WriteCall(environment, context, access, owner, reply);
}

grpc::ServerWriteReactor<v1::ReadResponse>* StartRegionRead(
    CallEnvironment* environment, const absl::Status& access,
    const std::string& owner, const v1::ReadRequest& request) {
  return new ReadCall(environment, access, owner, request);
}

}  // namespace attendant::server
