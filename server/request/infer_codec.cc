#include "server/request/infer_codec.h"

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <climits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/request/errors.h"
#include "server/request/tensor_geometry.h"

namespace attendant::server {
namespace {

using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;
using inference::ModelInferRequest;
using inference::ModelInferResponse;

constexpr uint32_t kLengthDelimited = 2;
// Of kMaxHeaderBytes, for every field: so there are at most 8 million.
constexpr int64_t kFieldCost = 4;

absl::Status Malformed(int64_t offset) {
  return InvalidField("", absl::StrCat("the message at byte ", offset),
                      "a ModelInferRequest");
}

// Walks the top-level fields: all of them are length-delimited.
class InferParser {
 public:
  InferParser(CodedInputStream* input, int64_t length)
      : input_(input), length_(length) {}

  absl::StatusOr<ParsedInfer> Parse() {
    while (input_->CurrentPosition() < length_) RETURN_IF_ERROR(ReadField());
    if (!parsed_.header.ParseFromString(text_)) return Malformed(0);
    RETURN_IF_ERROR(CheckNoUnknownFields(parsed_.header));
    return std::move(parsed_);
  }

 private:
  absl::Status ReadField() {
    const int64_t start = input_->CurrentPosition();
    uint64_t tag = 0, size = 0;
    if (!input_->ReadVarint64(&tag) || tag > UINT32_MAX || tag >> 3 == 0) {
      return Malformed(start);
    }
    const int number = static_cast<int>(tag >> 3);
    const auto* field =
        ModelInferRequest::descriptor()->FindFieldByNumber(number);
    if (field == nullptr) {
      return UnimplementedField(absl::StrCat("#", number),
                                absl::StrCat("field number ", number),
                                "a field that this server knows");
    }
    if ((tag & 7) != kLengthDelimited) {
      return InvalidField(field->name(), absl::StrCat("of wire type ", tag & 7),
                          "of the type that the protocol gives it");
    }
    if (!input_->ReadVarint64(&size)) return Malformed(start);
    const int64_t offset = input_->CurrentPosition();
    if (size > static_cast<uint64_t>(length_ - offset)) {
      return InvalidField(field->name(), absl::StrCat(size, " bytes long"),
                          absl::StrCat("at most the ", length_ - offset,
                                       " bytes left in the message"));
    }
    const bool raw = number == ModelInferRequest::kRawInputContentsFieldNumber;
    RETURN_IF_ERROR(Count(kFieldCost + (raw ? 0 : static_cast<int64_t>(size))));
    if (!raw) return Keep(static_cast<uint32_t>(tag), size);
    parsed_.raw.push_back({offset, static_cast<int64_t>(size)});
    return input_->Skip(static_cast<int>(size)) ? absl::OkStatus()
                                                : Malformed(offset);
  }

  absl::Status Keep(uint32_t tag, uint64_t size) {
    std::string payload;
    if (!input_->ReadString(&payload, static_cast<int>(size))) {
      return Malformed(input_->CurrentPosition());
    }
    uint8_t raw[16];
    uint8_t* end = CodedOutputStream::WriteTagToArray(tag, raw);
    end = CodedOutputStream::WriteVarint64ToArray(size, end);
    text_.append(reinterpret_cast<char*>(raw), end - raw);
    text_ += payload;
    return absl::OkStatus();
  }

  absl::Status Count(int64_t bytes) {
    header_bytes_ += bytes;
    if (header_bytes_ <= kMaxHeaderBytes) return absl::OkStatus();
    return InvalidField(
        "", "what the message holds beside raw_input_contents",
        absl::StrCat("at most ", kMaxHeaderBytes, " bytes (max_header_bytes)"));
  }

  CodedInputStream* input_;
  const int64_t length_;
  int64_t header_bytes_ = 0;
  std::string text_;  // the message without its raw contents
  ParsedInfer parsed_;
};

void DescribeAnswer(const v1::AttendResponse& answer,
                    ModelInferResponse* reply) {
  auto& parameters = *reply->mutable_parameters();
  const v1::ServedBy& by = answer.served_by();
  parameters["kernel"].set_string_param(by.kernel());
  parameters["backend"].set_string_param(
      by.backend() == v1::BACKEND_CUDA ? "cuda" : "cpu");
  parameters["compute_dtype"].set_string_param(
      DataTypeText(by.compute_dtype()));
  parameters["total_ns"].set_int64_param(answer.exposed().total_ns());
}

}  // namespace

absl::StatusOr<ParsedInfer> ParseModelInfer(const grpc::ByteBuffer& message) {
  const size_t length = message.Length();
  if (length > INT_MAX) {
    return InvalidField("", absl::StrCat("the message of ", length, " bytes"),
                        absl::StrCat("at most ", INT_MAX, " bytes"));
  }
  if (length == 0) return ParsedInfer();
  // Only reads the buffer, which has no const accessor.
  grpc::ProtoBufferReader reader(const_cast<grpc::ByteBuffer*>(&message));
  CodedInputStream input(&reader);
  return InferParser(&input, static_cast<int64_t>(length)).Parse();
}

absl::Status CheckModel(const std::string& name, const std::string& version) {
  if (name != kModelName) {
    return WithDetail(absl::NotFoundError(absl::StrCat(
                          "there is no model '", Shortened(name),
                          "'; this server has '", kModelName, "'")),
                      "model_name", name, kModelName);
  }
  if (version.empty() || version == kModelVersion) return absl::OkStatus();
  return WithDetail(absl::NotFoundError(absl::StrCat(
                        "model 'attention' has no version '",
                        Shortened(version), "', only ", kModelVersion)),
                    "model_version", version, kModelVersion);
}

grpc::ByteBuffer EncodeModelInfer(const InferReplyPlan& plan,
                                  const v1::AttendResponse& header,
                                  std::shared_ptr<HostBlock> block,
                                  int64_t output_bytes, int64_t lse_offset,
                                  int64_t lse_bytes) {
  ModelInferResponse reply;
  reply.set_model_name(kModelName);
  reply.set_model_version(kModelVersion);
  reply.set_id(plan.id);
  DescribeAnswer(header, &reply);
  std::vector<TensorPart> parts;
  for (const std::string& name : plan.outputs) {
    const bool is_lse = name == "lse";
    const v1::TensorSpec& spec = is_lse ? header.lse() : header.output();
    auto* output = reply.add_outputs();
    output->set_name(name);
    output->set_datatype(DataTypeText(spec.dtype()));
    *output->mutable_shape() = spec.shape();
    parts.push_back({ModelInferResponse::kRawOutputContentsFieldNumber,
                     is_lse ? lse_offset : 0,
                     is_lse ? lse_bytes : output_bytes});
  }
  return AppendTensors(reply.SerializeAsString(), std::move(block), parts);
}

}  // namespace attendant::server
