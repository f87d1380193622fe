#include "client/cpp/reply_decoder.h"

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attendant/v1/attention.pb.h"
#include "client/cpp/client_error.h"
#include "client/cpp/message_reader.h"

namespace attendant::client {
namespace {

using Response = v1::AttendResponse;

absl::Status Broken(const std::string& what) {
  return absl::InternalError(
      absl::StrCat("the server's reply breaks the contract: ", what));
}

std::vector<DataType> DataTypes(
    const google::protobuf::RepeatedField<int>& values) {
  std::vector<DataType> dtypes;
  for (int value : values) dtypes.push_back(static_cast<DataType>(value));
  return dtypes;
}

StageTimes Times(const v1::StageTimes& from) {
  return {from.receive_ns(), from.queue_ns(),    from.upload_ns(),
          from.kernel_ns(),  from.download_ns(), from.send_ns(),
          from.total_ns()};
}

// The tensor `spec` describes, its bytes copied out of `message`.
absl::StatusOr<Tensor> ReadTensor(const std::string& name,
                                  const v1::TensorSpec& spec,
                                  const MessageReader& message,
                                  const MessageReader::Extent& bytes,
                                  std::span<std::byte> destination) {
  absl::StatusOr<Tensor> empty = EmptyTensor(name, spec);
  if (!empty.ok()) return empty;
  Tensor tensor = *std::move(empty);
  if (spec.has_region()) {
    if (static_cast<int64_t>(destination.size()) != tensor.num_bytes ||
        bytes.num_bytes > 0) {
      return Broken(name + " is in a region that was not asked for");
    }
    tensor.data = destination.data();  // the server wrote it there
    return tensor;
  }
  if (tensor.num_bytes != bytes.num_bytes) {
    return Broken(absl::StrCat(name, " has ", bytes.num_bytes,
                               " bytes, its shape ", tensor.num_bytes));
  }
  if (destination.empty()) {
    tensor.storage = NewTensorMemory(tensor.num_bytes);
    tensor.data = tensor.storage.get();
  } else if (static_cast<int64_t>(destination.size()) != tensor.num_bytes) {
    return InvalidField(name, absl::StrCat(destination.size(), " bytes"),
                        absl::StrCat(tensor.num_bytes, " bytes"));
  } else {
    tensor.data = destination.data();
  }
  message.Copy(bytes, tensor.data);
  return tensor;
}

Capability CapabilityOf(const v1::Capability& from) {
  Capability to;
  to.kernel = from.kernel();
  to.backend = static_cast<Backend>(from.backend());
  to.op = from.op();
  to.min_compute_capability = from.min_compute_capability();
  to.max_compute_capability = from.max_compute_capability();
  to.input_dtypes = DataTypes(from.input_dtypes());
  to.output_dtypes = DataTypes(from.output_dtypes());
  to.max_head_dim = from.max_head_dim();
  to.boolean_mask = from.boolean_mask();
  to.additive_mask = from.additive_mask();
  to.alibi = from.alibi();
  to.softcap = from.softcap();
  to.sinks = from.sinks();
  to.window = from.window();
  return to;
}

// A bound that this build does not know stays behind.
Bounds BoundsOf(const v1::Bounds& from) {
  Bounds to;
  for (const BoundField& field : BoundFields()) {
    to.*field.value = from.GetReflection()->GetInt64(
        from, from.GetDescriptor()->FindFieldByName(field.name));
  }
  return to;
}

}  // namespace

const char* Name(Backend backend) {
  switch (backend) {
    case Backend::kUnset:
      return "unset";
    case Backend::kCpu:
      return "cpu";
    case Backend::kCuda:
      return "cuda";
  }
  return "?";
}

AttendResult ResultOf(const v1::AttendResponse& response) {
  AttendResult result;
  result.request_id = response.request_id();
  const v1::ServedBy& served_by = response.served_by();
  result.served_by = {static_cast<Backend>(served_by.backend()),
                      served_by.device_index(), served_by.device_uuid(),
                      served_by.kernel(),
                      static_cast<DataType>(served_by.compute_dtype())};
  result.exposed = Times(response.exposed());
  result.busy = Times(response.busy());
  result.batch_requests = response.batch().requests();
  result.batch_tokens = response.batch().tokens();
  result.workspace_bytes = response.memory().workspace_bytes();
  result.input_bytes = response.memory().input_bytes();
  result.output_bytes = response.memory().output_bytes();
  return result;
}

absl::StatusOr<Tensor> EmptyTensor(const std::string& name,
                                   const v1::TensorSpec& spec) {
  Tensor tensor;
  tensor.dtype = static_cast<DataType>(spec.dtype());
  tensor.shape.assign(spec.shape().begin(), spec.shape().end());
  const absl::StatusOr<int64_t> elements = NumElements(tensor.shape);
  if (!elements.ok()) return Broken(name + " has an impossible shape");
  const std::vector<int64_t> strides(spec.strides().begin(),
                                     spec.strides().end());
  if (!strides.empty() &&
      strides != ContiguousStrides(tensor.dtype, tensor.shape)) {
    return Broken(name + " is not contiguous");
  }
  tensor.num_bytes = NumBytes(tensor.dtype, *elements);
  return tensor;
}

absl::StatusOr<AttendResult> DecodeAttendResponse(
    const AttendArgs& args, const grpc::ByteBuffer& message) {
  const absl::StatusOr<MessageReader> reader = MessageReader::Create(message);
  if (!reader.ok()) return reader.status();
  absl::StatusOr<MessageReader::Fields> fields =
      reader->Split(Response::kOutputDataFieldNumber);
  if (!fields.ok()) return fields.status();
  Response response;
  if (!response.ParseFromString(fields->rest)) {
    return absl::InternalError("the reply is not an AttendResponse");
  }
  AttendResult result = ResultOf(response);
  absl::StatusOr<Tensor> out =
      ReadTensor("out", response.output(), *reader,
                 fields->set_apart[Response::kOutputDataFieldNumber], args.out);
  if (!out.ok()) return out.status();
  result.out = *std::move(out);
  if (response.has_lse() != args.return_lse) {
    return Broken(args.return_lse ? "it has no LSE" : "it has an LSE");
  }
  if (args.return_lse) {
    absl::StatusOr<Tensor> lse =
        ReadTensor("lse", response.lse(), *reader,
                   fields->set_apart[Response::kLseDataFieldNumber], args.lse);
    if (!lse.ok()) return lse.status();
    result.lse = *std::move(lse);
  }
  return result;
}

absl::StatusOr<ServerInfo> DecodeServerInfo(const grpc::ByteBuffer& message) {
  const absl::StatusOr<MessageReader> reader = MessageReader::Create(message);
  if (!reader.ok()) return reader.status();
  std::string bytes(static_cast<size_t>(reader->num_bytes()), '\0');
  reader->Copy({0, reader->num_bytes()},
               reinterpret_cast<std::byte*>(bytes.data()));
  v1::GetServerInfoResponse response;
  if (!response.ParseFromString(bytes)) {
    return absl::InternalError("the reply is not a GetServerInfoResponse");
  }
  ServerInfo info;
  info.version = response.version();
  info.build = response.build();
  info.uptime_ns = response.uptime_ns();
  for (const v1::Device& from : response.devices()) {
    info.devices.push_back({from.index(), from.uuid(), from.name(),
                            static_cast<Backend>(from.backend()),
                            from.memory_bytes(), from.compute_capability(),
                            from.num_sms(), from.instruction_set()});
  }
  info.bounds = BoundsOf(response.bounds());
  info.region_kinds.assign(response.region_kinds().begin(),
                           response.region_kinds().end());
  info.region_socket = response.region_socket();
  for (const v1::Capability& from : response.capabilities()) {
    info.capabilities.push_back(CapabilityOf(from));
  }
  return info;
}

}  // namespace attendant::client
