#include "client/cpp/request_encoder.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attendant/v1/attention.pb.h"
#include "client/cpp/client_error.h"
#include "client/cpp/shared_range.h"

namespace attendant::client {
namespace {

constexpr int64_t kMaxMessageBytes = (int64_t{1} << 32) - 1;

void AppendVarint(uint64_t value, std::string* bytes) {
  while (value >= 0x80) {
    bytes->push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  bytes->push_back(static_cast<char>(value));
}

void SetOptions(const AttendArgs& args, v1::AttendRequest* request) {
  request->set_request_id(args.request_id);
  request->set_num_q_heads(args.num_q_heads);
  request->set_num_kv_heads(args.num_kv_heads);
  request->set_compute_dtype(static_cast<v1::DataType>(args.compute_dtype));
  request->set_output_dtype(static_cast<v1::DataType>(args.output_dtype));
  if (args.softmax_scale) request->set_softmax_scale(*args.softmax_scale);
  if (args.softcap) request->set_softcap(*args.softcap);
  request->set_causal(args.causal);
  request->set_alignment(static_cast<v1::CausalAlignment>(args.alignment));
  if (args.window_left) request->set_window_left(*args.window_left);
  if (args.window_right) request->set_window_right(*args.window_right);
  request->set_return_lse(args.return_lse);
  request->set_dropout_p(args.dropout_p);
  request->set_priority(args.priority);
  request->set_ordering_key(args.ordering_key);
}

void SetLists(const AttendArgs& args, v1::AttendRequest* request) {
  const auto set = [](const auto& from, auto* to) {
    to->Add(from.begin(), from.end());
  };
  set(args.cu_seqlens_q, request->mutable_cu_seqlens_q());
  set(args.cu_seqlens_k, request->mutable_cu_seqlens_k());
  set(args.seqlens_q, request->mutable_seqlens_q());
  set(args.seqlens_k, request->mutable_seqlens_k());
  set(args.starts_q, request->mutable_starts_q());
  set(args.starts_k, request->mutable_starts_k());
  set(args.alibi_slopes, request->mutable_alibi_slopes());
  set(args.sinks, request->mutable_sinks());
}

void SetSpec(const TensorView& tensor, Layout layout,
             const std::vector<int64_t>& strides, v1::TensorSpec* spec) {
  spec->set_dtype(static_cast<v1::DataType>(tensor.dtype));
  spec->set_layout(static_cast<v1::Layout>(layout));
  spec->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
  spec->mutable_strides()->Add(strides.begin(), strides.end());
}

void SetRegion(const SharedPart& part, v1::Region* region) {
  region->set_name(part.range->name);
  region->set_byte_offset(part.offset);
  region->set_byte_length(part.bytes);
}

void SetOutputRegions(const AttendArgs& args, v1::AttendRequest* request) {
  const auto shared = [&](std::span<std::byte> memory) {
    return memory.empty() ? std::nullopt
                          : FindShared(args.shared, memory.data(),
                                       static_cast<int64_t>(memory.size()));
  };
  if (const auto out = shared(args.out); out.has_value()) {
    SetRegion(*out, request->mutable_output_region());
  }
  if (const auto lse = shared(args.lse); lse.has_value() && args.return_lse) {
    SetRegion(*lse, request->mutable_lse_region());
  }
}

// Of an AttendRequest's bytes field.
int DataField(TensorName name) {
  return v1::AttendRequest::kQDataFieldNumber + static_cast<int>(name);
}

// Adds specs to `request` and bytes to `tensors`.
absl::Status AddTensors(const AttendArgs& args, v1::AttendRequest* request,
                        std::vector<NamedTensor>* tensors) {
  using Request = v1::AttendRequest;
  const struct {
    const char* name;
    const TensorView& tensor;
    Layout layout;
    v1::TensorSpec* (Request::*spec)();
    TensorName field;
  } entries[] = {
      {"q", args.q, args.layout, &Request::mutable_q, TensorName::kQ},
      {"k", args.k, args.layout, &Request::mutable_k, TensorName::kK},
      {"v", args.v, args.layout, &Request::mutable_v, TensorName::kV},
      {"qkv", args.qkv, args.layout, &Request::mutable_qkv, TensorName::kQkv},
      {"mask", args.mask, Layout::kUnset, &Request::mutable_mask,
       TensorName::kMask},
  };
  for (const auto& entry : entries) {
    if (!entry.tensor.given()) continue;
    if (const std::optional<SharedPart> part =
            FindShared(args.shared, entry.tensor.data, SpanBytes(entry.tensor));
        part.has_value()) {
      v1::TensorSpec* spec = (request->*entry.spec)();
      SetSpec(entry.tensor, entry.layout, entry.tensor.strides, spec);
      SetRegion(*part, spec->mutable_region());
      continue;
    }
    absl::StatusOr<TensorBytes> bytes = BytesOf(entry.name, entry.tensor);
    if (!bytes.ok()) return bytes.status();
    SetSpec(entry.tensor, entry.layout, bytes->strides,
            (request->*entry.spec)());
    tensors->push_back({entry.field, *std::move(bytes)});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<EncodedHeader> EncodeHeader(const AttendArgs& args) {
  v1::AttendRequest request;
  SetOptions(args, &request);
  SetLists(args, &request);
  SetOutputRegions(args, &request);
  EncodedHeader header;
  absl::Status status = AddTensors(args, &request, &header.tensors);
  if (!status.ok()) return status;
  header.message = request.SerializeAsString();
  for (const NamedTensor& tensor : header.tensors) {
    // Each is below 2^61.
    header.tensor_bytes = std::min(header.tensor_bytes + tensor.bytes.num_bytes,
                                   int64_t{1} << 62);
  }
  return header;
}

absl::StatusOr<EncodedRequest> EncodeAttendRequest(EncodedHeader header,
                                                   BorrowedMemory& borrowed) {
  EncodedRequest encoded;
  encoded.tensors = std::move(header.tensors);
  std::string head = std::move(header.message);
  encoded.num_bytes = header.tensor_bytes;
  std::vector<grpc::Slice> slices;
  for (const NamedTensor& tensor : encoded.tensors) {
    if (tensor.bytes.num_bytes > 0) {  // absent and empty are the same
      AppendVarint(static_cast<uint64_t>(DataField(tensor.field)) << 3 | 2,
                   &head);
      AppendVarint(static_cast<uint64_t>(tensor.bytes.num_bytes), &head);
    }
    encoded.num_bytes += static_cast<int64_t>(head.size());
    slices.emplace_back(std::exchange(head, {}));
    for (const std::span<const std::byte>& piece : tensor.bytes.pieces) {
      slices.push_back(borrowed.Lend(piece));
    }
  }
  encoded.num_bytes += static_cast<int64_t>(head.size());
  slices.emplace_back(head);
  if (encoded.num_bytes > kMaxMessageBytes) {
    return InvalidField("request", absl::StrCat(encoded.num_bytes, " bytes"),
                        absl::StrCat("at most ", kMaxMessageBytes,
                                     " bytes, what one gRPC message holds"));
  }
  encoded.message = grpc::ByteBuffer(slices.data(), slices.size());
  return encoded;
}

}  // namespace attendant::client
