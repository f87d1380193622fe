#include "server/request/wire_codec.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/unknown_field_set.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/request/element_conversion.h"
#include "server/request/errors.h"

namespace attendant::server {
namespace {

namespace pb = google::protobuf;
using pb::io::CodedInputStream;
using pb::io::CodedOutputStream;

enum WireType : uint32_t {
  kVarint = 0,
  kFixed64 = 1,
  kLengthDelimited = 2,
  kStartGroup = 3,
  kEndGroup = 4,
  kFixed32 = 5,
};

constexpr int kFirstTensorField = v1::AttendRequest::kQDataFieldNumber;
static_assert(v1::AttendRequest::kMaskDataFieldNumber ==
              kFirstTensorField + static_cast<int>(TensorField::kMask));

// A TensorSpec or Region is tens of bytes; more is an attack on memory.
constexpr uint64_t kMaxSpecBytes = 64 << 10;

// Of kMaxHeaderBytes, for every field: so there are at most 8 million.
constexpr int64_t kFieldCost = 4;

bool IsTensorField(int number) {
  return number >= kFirstTensorField &&
         number < kFirstTensorField + kNumTensorFields;
}

absl::Status UnknownField(const std::string& prefix, int number) {
  return UnimplementedField(
      absl::StrCat(prefix, "#", number), absl::StrCat("field number ", number),
      "a field that this server knows (the caller may be newer)");
}

absl::Status WrongWireType(const std::string& field, uint32_t wire_type) {
  return InvalidField(field, absl::StrCat("of wire type ", wire_type),
                      "of the type that the proto file gives it");
}

absl::Status Malformed(int64_t offset, const std::string& bound) {
  return InvalidField("", absl::StrCat("the message at byte ", offset), bound);
}

// ProtoBufferReader only reads the buffer; its constructor takes a mutable
// pointer because grpc::ByteBuffer has no const accessor.
grpc::ByteBuffer* Mutable(const grpc::ByteBuffer& message) {
  return const_cast<grpc::ByteBuffer*>(&message);
}

// Walks the top-level fields of one message. Each field but the tensors is
// merged into the header by protobuf, one at a time, so that an error names it.
class RequestParser {
 public:
  // From where `input` stands to `end`.
  RequestParser(CodedInputStream* input, int64_t end)
      : input_(input), end_(end) {}

  absl::StatusOr<ParsedRequest> Parse() {
    while (input_->CurrentPosition() < end_) {
      RETURN_IF_ERROR(ReadField());
    }
    RETURN_IF_ERROR(CheckNoUnknownFields(parsed_.header));
    return std::move(parsed_);
  }

 private:
  absl::Status ReadField() {
    const int64_t start = input_->CurrentPosition();
    // A field costs time even if it is two bytes long.
    RETURN_IF_ERROR(CountHeaderBytes(kFieldCost));
    uint64_t tag = 0;
    if (!input_->ReadVarint64(&tag) || tag > UINT32_MAX || tag >> 3 == 0) {
      return Malformed(start, "a field's tag");
    }
    const int number = static_cast<int>(tag >> 3);
    const uint32_t wire_type = tag & 7;
    const pb::FieldDescriptor* field =
        v1::AttendRequest::descriptor()->FindFieldByNumber(number);
    if (wire_type > kFixed32 || wire_type == kEndGroup) {
      return Malformed(start, "a field's tag");
    }
    if (field == nullptr) return UnknownField("", number);
    if (wire_type == kStartGroup ||
        (IsTensorField(number) && wire_type != kLengthDelimited)) {
      return WrongWireType(field->name(), wire_type);
    }
    return wire_type == kLengthDelimited
               ? ReadBytes(*field, static_cast<uint32_t>(tag))
               : ReadNumber(*field, static_cast<uint32_t>(tag));
  }

  absl::Status ReadNumber(const pb::FieldDescriptor& field, uint32_t tag) {
    const int64_t start = input_->CurrentPosition();
    uint8_t raw[16];
    uint8_t* end = CodedOutputStream::WriteTagToArray(tag, raw);
    bool ok = false;
    uint64_t value = 0;
    uint32_t value32 = 0;
    switch (tag & 7) {
      case kVarint:
        ok = input_->ReadVarint64(&value);
        end = CodedOutputStream::WriteVarint64ToArray(value, end);
        break;
      case kFixed64:
        ok = input_->ReadLittleEndian64(&value);
        end = CodedOutputStream::WriteLittleEndian64ToArray(value, end);
        break;
      default:
        ok = input_->ReadLittleEndian32(&value32);
        end = CodedOutputStream::WriteLittleEndian32ToArray(value32, end);
    }
    if (!ok) return Malformed(start, absl::StrCat("a value of ", field.name()));
    scratch_.assign(reinterpret_cast<char*>(raw), end - raw);
    return MergeScratch(field);
  }

  absl::Status ReadBytes(const pb::FieldDescriptor& field, uint32_t tag) {
    const int64_t start = input_->CurrentPosition();
    uint64_t size = 0;
    if (!input_->ReadVarint64(&size)) {
      return Malformed(start, absl::StrCat("the length of ", field.name()));
    }
    const int64_t offset = input_->CurrentPosition();
    const uint64_t left = static_cast<uint64_t>(end_ - offset);
    if (size > left) {
      return InvalidField(
          field.name(), absl::StrCat(size, " bytes long"),
          absl::StrCat("at most the ", left, " bytes left in the message"));
    }
    if (IsTensorField(field.number())) {
      parsed_.tensors[field.number() - kFirstTensorField] = {
          offset, static_cast<int64_t>(size)};
      if (!input_->Skip(static_cast<int>(size))) {
        return Malformed(offset, "readable");
      }
      return absl::OkStatus();
    }
    if (field.type() == pb::FieldDescriptor::TYPE_MESSAGE &&
        size > kMaxSpecBytes) {
      return InvalidField(field.name(), absl::StrCat(size, " bytes long"),
                          absl::StrCat("at most ", kMaxSpecBytes, " bytes"));
    }
    // Before anything is copied.
    RETURN_IF_ERROR(CountHeaderBytes(static_cast<int64_t>(size)));
    std::string payload;
    if (!input_->ReadString(&payload, static_cast<int>(size))) {
      return Malformed(offset, "readable");
    }
    if (field.type() == pb::FieldDescriptor::TYPE_STRING &&
        std::any_of(payload.begin(), payload.end(),
                    [](char c) { return (c & 0x80) != 0; })) {
      return InvalidField(field.name(), "text with a byte above 127",
                          "printable ASCII");
    }
    uint8_t raw[16];
    uint8_t* end = CodedOutputStream::WriteTagToArray(tag, raw);
    end = CodedOutputStream::WriteVarint64ToArray(size, end);
    scratch_.assign(reinterpret_cast<char*>(raw), end - raw);
    scratch_ += payload;
    return MergeScratch(field);
  }

  absl::Status CountHeaderBytes(int64_t bytes) {
    header_bytes_ += bytes;
    if (header_bytes_ <= kMaxHeaderBytes) return absl::OkStatus();
    return InvalidField(
        "", "what the message holds beside its tensors",
        absl::StrCat("at most ", kMaxHeaderBytes, " bytes (max_header_bytes)"));
  }

  absl::Status MergeScratch(const pb::FieldDescriptor& field) {
    if (parsed_.header.MergeFromString(scratch_)) return absl::OkStatus();
    return InvalidField(field.name(),
                        absl::StrCat(scratch_.size(), " malformed bytes"),
                        "encoded as the proto file says");
  }

  CodedInputStream* input_;
  const int64_t end_;
  int64_t header_bytes_ = 0;
  std::string scratch_;  // one field, tag included
  ParsedRequest parsed_;
};

absl::Status CheckUnknown(const pb::Message& message,
                          const std::string& prefix) {
  const pb::Reflection& reflection = *message.GetReflection();
  const pb::UnknownFieldSet& unknown = reflection.GetUnknownFields(message);
  if (!unknown.empty()) {
    const pb::UnknownField& first = unknown.field(0);
    const pb::FieldDescriptor* known =
        message.GetDescriptor()->FindFieldByNumber(first.number());
    if (known == nullptr) return UnknownField(prefix, first.number());
    constexpr uint32_t kWireTypes[] = {kVarint, kFixed32, kFixed64,
                                       kLengthDelimited, kStartGroup};
    return WrongWireType(absl::StrCat(prefix, known->name()),
                         kWireTypes[first.type()]);
  }
  const pb::Descriptor& type = *message.GetDescriptor();
  for (int f = 0; f < type.field_count(); ++f) {
    const pb::FieldDescriptor* field = type.field(f);
    if (field->cpp_type() != pb::FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      if (!reflection.HasField(message, field)) continue;
      RETURN_IF_ERROR(CheckUnknown(reflection.GetMessage(message, field),
                                   absl::StrCat(prefix, field->name(), ".")));
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      RETURN_IF_ERROR(
          CheckUnknown(reflection.GetRepeatedMessage(message, field, i),
                       absl::StrCat(prefix, field->name(), "[", i, "].")));
    }
  }
  return absl::OkStatus();
}

// Converts a run of bytes that arrives in pieces of any size: an element may
// begin in one slice and end in the next.
class PieceConverter {
 public:
  PieceConverter(kernels::DataType from, kernels::DataType to,
                 std::byte* destination)
      : from_(from), to_(to), destination_(destination) {}

  void Take(const std::byte* data, int64_t bytes) {
    if (from_ == to_) {
      std::memcpy(destination_, data, bytes);
      destination_ += bytes;
      return;
    }
    const int64_t size = kernels::SizeOf(from_);
    if (carried_ > 0) {
      const int64_t missing = std::min(bytes, size - carried_);
      std::memcpy(carry_ + carried_, data, missing);
      carried_ += missing;
      data += missing;
      bytes -= missing;
      if (carried_ < size) return;
      Convert(carry_, 1);
    }
    Convert(data, bytes / size);
    carried_ = bytes % size;
    std::memcpy(carry_, data + bytes - carried_, carried_);
  }

 private:
  void Convert(const std::byte* data, int64_t count) {
    ConvertElements(data, from_, destination_, to_, count);
    destination_ += count * kernels::SizeOf(to_);
  }

  const kernels::DataType from_, to_;
  std::byte* destination_;
  std::byte carry_[4];
  int64_t carried_ = 0;
};

}  // namespace

absl::StatusOr<ParsedRequest> ParseAttendRequest(
    const grpc::ByteBuffer& message) {
  const size_t length = message.Length();
  if (length > INT_MAX) {
    return InvalidField("", absl::StrCat("the message of ", length, " bytes"),
                        absl::StrCat("at most ", INT_MAX, " bytes"));
  }
  return ParseAttendRequestAt(message, 0, static_cast<int64_t>(length));
}

absl::StatusOr<ParsedRequest> ParseAttendRequestAt(
    const grpc::ByteBuffer& message, int64_t offset, int64_t bytes) {
  if (bytes == 0) return ParsedRequest();
  grpc::ProtoBufferReader reader(Mutable(message));
  CodedInputStream input(&reader);
  if (!input.Skip(static_cast<int>(offset))) {
    return Malformed(offset, "readable");
  }
  return RequestParser(&input, offset + bytes).Parse();
}

absl::Status CheckNoUnknownFields(const google::protobuf::Message& message) {
  return CheckUnknown(message, "");
}

absl::Status CopyTensorBytes(const grpc::ByteBuffer& message, int64_t offset,
                             int64_t bytes, kernels::DataType from,
                             kernels::DataType to, std::byte* destination) {
  const int64_t length = static_cast<int64_t>(message.Length());
  if (offset < 0 || bytes < 0 || offset > length || bytes > length - offset ||
      length > INT_MAX || (from != to && bytes % kernels::SizeOf(from) != 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor bytes [", offset, ", +", bytes,
                     ") are not whole elements within ", length, " bytes"));
  }
  if (bytes == 0) return absl::OkStatus();
  grpc::ProtoBufferReader reader(Mutable(message));
  if (offset > 0 && !reader.Skip(static_cast<int>(offset))) {
    return absl::InternalError("the message ended early");
  }
  PieceConverter converter(from, to, destination);
  const void* data = nullptr;
  int size = 0;
  for (int64_t left = bytes; left > 0; left -= size) {
    if (!reader.Next(&data, &size)) {
      return absl::InternalError("the message ended early");
    }
    size = static_cast<int>(std::min<int64_t>(size, left));
    converter.Take(static_cast<const std::byte*>(data), size);
  }
  return absl::OkStatus();
}

grpc::ByteBuffer AppendTensors(std::string text,
                               std::shared_ptr<HostBlock> block,
                               const std::vector<TensorPart>& parts) {
  std::vector<grpc::Slice> slices;
  for (const TensorPart& part : parts) {
    AppendBytesTag(part.field_number, part.bytes, &text);
    if (part.bytes == 0) continue;
    slices.emplace_back(text);
    slices.push_back(OwningSlice(block, part.offset, part.bytes));
    text.clear();
  }
  if (slices.empty() || !text.empty()) slices.emplace_back(text);
  return grpc::ByteBuffer(slices.data(), slices.size());
}

grpc::Slice OwningSlice(const std::shared_ptr<HostBlock>& block, int64_t offset,
                        int64_t bytes) {
  return grpc::Slice(
      block->data() + offset, static_cast<size_t>(bytes),
      [](void* owner) {
        delete static_cast<std::shared_ptr<HostBlock>*>(owner);
      },
      new std::shared_ptr<HostBlock>(block));
}

void AppendBytesTag(int field_number, int64_t bytes, std::string* out) {
  uint8_t raw[16];
  uint8_t* end = CodedOutputStream::WriteTagToArray(
      static_cast<uint32_t>(field_number) << 3 | kLengthDelimited, raw);
  end = CodedOutputStream::WriteVarint64ToArray(static_cast<uint64_t>(bytes),
                                                end);
  out->append(reinterpret_cast<char*>(raw), end - raw);
}

grpc::ByteBuffer EncodeAttendResponse(const v1::AttendResponse& header,
                                      std::shared_ptr<HostBlock> block,
                                      int64_t output_bytes, int64_t lse_offset,
                                      int64_t lse_bytes) {
  std::vector<TensorPart> parts;
  if (output_bytes > 0) {
    parts.push_back(
        {v1::AttendResponse::kOutputDataFieldNumber, 0, output_bytes});
  }
  if (lse_bytes > 0) {
    parts.push_back(
        {v1::AttendResponse::kLseDataFieldNumber, lse_offset, lse_bytes});
  }
  return AppendTensors(header.SerializeAsString(), std::move(block), parts);
}

}  // namespace attendant::server
