#include "client/cpp/request_encoder.h"

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

// Adds specs to `request` and bytes to `tensors`, and collects the numbers of
// the bytes' fields in `fields`.
absl::Status AddTensors(const AttendArgs& args, v1::AttendRequest* request,
                        std::vector<int>* fields,
                        std::vector<TensorBytes>* tensors) {
  using Request = v1::AttendRequest;
  const struct {
    const char* name;
    const TensorView& tensor;
    Layout layout;
    v1::TensorSpec* (Request::*spec)();
    int bytes_field;
  } entries[] = {
      {"q", args.q, args.layout, &Request::mutable_q,
       Request::kQDataFieldNumber},
      {"k", args.k, args.layout, &Request::mutable_k,
       Request::kKDataFieldNumber},
      {"v", args.v, args.layout, &Request::mutable_v,
       Request::kVDataFieldNumber},
      {"qkv", args.qkv, args.layout, &Request::mutable_qkv,
       Request::kQkvDataFieldNumber},
      {"mask", args.mask, Layout::kUnset, &Request::mutable_mask,
       Request::kMaskDataFieldNumber},
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
    fields->push_back(entry.bytes_field);
    tensors->push_back(*std::move(bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<EncodedRequest> EncodeAttendRequest(const AttendArgs& args,
                                                   BorrowedMemory& borrowed) {
  v1::AttendRequest request;
  SetOptions(args, &request);
  SetLists(args, &request);
  SetOutputRegions(args, &request);
  EncodedRequest encoded;
  std::vector<int> fields;
  absl::Status status = AddTensors(args, &request, &fields, &encoded.tensors);
  if (!status.ok()) return status;

  std::string head = request.SerializeAsString();
  std::vector<std::string> heads;
  int64_t tensor_bytes = 0;
  for (size_t t = 0; t < fields.size(); ++t) {
    const int64_t bytes = encoded.tensors[t].num_bytes;
    if (bytes > kMaxMessageBytes) tensor_bytes = kMaxMessageBytes;
    tensor_bytes += bytes;
    if (bytes > 0) {  // absent and empty are the same to protobuf
      AppendVarint(static_cast<uint64_t>(fields[t]) << 3 | 2, &head);
      AppendVarint(static_cast<uint64_t>(bytes), &head);
    }
    encoded.num_bytes += static_cast<int64_t>(head.size());
    heads.push_back(std::exchange(head, {}));
  }
  encoded.num_bytes += static_cast<int64_t>(head.size()) + tensor_bytes;
  if (encoded.num_bytes > kMaxMessageBytes) {
    return InvalidField("request", absl::StrCat(encoded.num_bytes, " bytes"),
                        absl::StrCat("at most ", kMaxMessageBytes,
                                     " bytes, what one gRPC message holds"));
  }
  std::vector<grpc::Slice> slices;
  for (size_t t = 0; t < fields.size(); ++t) {
    slices.emplace_back(heads[t]);
    for (const std::span<const std::byte>& piece : encoded.tensors[t].pieces) {
      slices.push_back(borrowed.Lend(piece));
    }
  }
  slices.emplace_back(head);
  encoded.message = grpc::ByteBuffer(slices.data(), slices.size());
  return encoded;
}

}  // namespace attendant::client
