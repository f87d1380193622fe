#include "client/cpp/c_api/c_args.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/client_error.h"

namespace attendant::client {
namespace {

// The fields that the caller's version of a struct has; the others are 0.
template <typename Struct>
absl::StatusOr<Struct> Sized(const char* name, const Struct* given) {
  Struct fields{};
  const size_t size = given->struct_size;
  if (size < sizeof(size_t) || size > sizeof(Struct) * 4) {
    return InvalidField(absl::StrCat(name, ".struct_size"), absl::StrCat(size),
                        absl::StrCat("sizeof, here ", sizeof(Struct)));
  }
  std::memcpy(&fields, given, std::min(size, sizeof(Struct)));
  return fields;
}

template <typename To, typename From>
absl::Status Copy(const char* field, const From* values, int64_t count,
                  std::vector<To>* list) {
  if (count < 0 || count > (int64_t{1} << 32)) {
    return InvalidField(absl::StrCat("num_", field), absl::StrCat(count),
                        "0..2^32");
  }
  if (count > 0 && values == nullptr) {
    return InvalidField(field, "null", absl::StrCat(count, " values"));
  }
  if (count > 0) list->assign(values, values + count);
  return absl::OkStatus();
}

absl::Status Copy(const char* field, const attendant_tensor& from,
                  bool device_tensors, TensorView* to) {
  if (from.dtype == 0) return absl::OkStatus();
  if (from.rank < 0 || from.rank > 32) {
    return InvalidField(absl::StrCat(field, ".rank"), absl::StrCat(from.rank),
                        "0..32");
  }
  const bool on_host =
      from.device_type == ATTENDANT_HOST || from.device_type == ATTENDANT_CPU;
  if (!on_host && !(device_tensors && from.device_type == ATTENDANT_CUDA)) {
    return InvalidField(
        absl::StrCat(field, ".device_type"), absl::StrCat(from.device_type),
        "host memory (0 or 1) for a door that carries the tensors' bytes");
  }
  to->data = from.data;
  to->dtype = static_cast<DataType>(from.dtype);
  absl::Status status = Copy(field, from.shape, from.rank, &to->shape);
  if (status.ok() && from.strides != nullptr) {
    status = Copy(field, from.strides, from.rank, &to->strides);
  }
  return status;
}

absl::Status Copy(const char* field, const attendant_buffer& from,
                  std::span<std::byte>* to) {
  if (from.data == nullptr) return absl::OkStatus();
  if (from.num_bytes < 0) {
    return InvalidField(absl::StrCat(field, ".num_bytes"),
                        absl::StrCat(from.num_bytes), ">= 0");
  }
  *to = {static_cast<std::byte*>(from.data),
         static_cast<size_t>(from.num_bytes)};
  return absl::OkStatus();
}

void SetScalars(const attendant_attend_args& from, AttendArgs* to) {
  if (from.request_id != nullptr) to->request_id = from.request_id;
  if (from.ordering_key != nullptr) to->ordering_key = from.ordering_key;
  to->layout = from.layout == 0 ? Layout::kBSHD : Layout{from.layout};
  to->num_q_heads = from.num_q_heads;
  to->num_kv_heads = from.num_kv_heads;
  to->compute_dtype = DataType{from.compute_dtype};
  to->output_dtype = DataType{from.output_dtype};
  to->causal = from.causal != 0;
  to->alignment = CausalAlignment{from.alignment};
  to->return_lse = from.return_lse != 0;
  to->dropout_p = from.dropout_p;
  to->priority = from.priority;
  const auto has = [&](uint32_t bit) { return (from.present & bit) != 0; };
  if (has(ATTENDANT_HAS_SOFTMAX_SCALE)) to->softmax_scale = from.softmax_scale;
  if (has(ATTENDANT_HAS_SOFTCAP)) to->softcap = from.softcap;
  if (has(ATTENDANT_HAS_WINDOW_LEFT)) to->window_left = from.window_left;
  if (has(ATTENDANT_HAS_WINDOW_RIGHT)) to->window_right = from.window_right;
  if (has(ATTENDANT_HAS_CUDA_STREAM)) to->cuda_stream = from.cuda_stream;
}

absl::Status SetLists(const attendant_attend_args& from, AttendArgs* to) {
  absl::Status status;
  status.Update(Copy("cu_seqlens_q", from.cu_seqlens_q, from.num_cu_seqlens_q,
                     &to->cu_seqlens_q));
  status.Update(Copy("cu_seqlens_k", from.cu_seqlens_k, from.num_cu_seqlens_k,
                     &to->cu_seqlens_k));
  status.Update(
      Copy("seqlens_q", from.seqlens_q, from.num_seqlens_q, &to->seqlens_q));
  status.Update(
      Copy("seqlens_k", from.seqlens_k, from.num_seqlens_k, &to->seqlens_k));
  status.Update(
      Copy("starts_q", from.starts_q, from.num_starts_q, &to->starts_q));
  status.Update(
      Copy("starts_k", from.starts_k, from.num_starts_k, &to->starts_k));
  status.Update(Copy("alibi_slopes", from.alibi_slopes, from.num_alibi_slopes,
                     &to->alibi_slopes));
  status.Update(Copy("sinks", from.sinks, from.num_sinks, &to->sinks));
  return status;
}

std::string Text(const char* text) { return text == nullptr ? "" : text; }

}  // namespace

absl::StatusOr<AttendArgs> ToAttendArgs(const attendant_attend_args* given,
                                        bool device_tensors) {
  if (given == nullptr) return InvalidField("args", "null", "given");
  const absl::StatusOr<attendant_attend_args> from = Sized("args", given);
  if (!from.ok()) return from.status();
  AttendArgs to;
  SetScalars(*from, &to);
  absl::Status status = SetLists(*from, &to);
  status.Update(Copy("q", from->q, device_tensors, &to.q));
  status.Update(Copy("k", from->k, device_tensors, &to.k));
  status.Update(Copy("v", from->v, device_tensors, &to.v));
  status.Update(Copy("qkv", from->qkv, device_tensors, &to.qkv));
  status.Update(Copy("mask", from->mask, device_tensors, &to.mask));
  status.Update(Copy("out", from->out, &to.out));
  status.Update(Copy("lse", from->lse, &to.lse));
  if (!status.ok()) return status;
  return to;
}

absl::StatusOr<CClientOptions> ToClientOptions(
    const attendant_client_options* given) {
  CClientOptions to;
  if (given == nullptr) return to;
  const absl::StatusOr<attendant_client_options> from = Sized("options", given);
  if (!from.ok()) return from.status();
  ClientOptions& client = to.client;
  client.tls = from->tls != 0;
  client.root_certificates = Text(from->root_certificates);
  client.client_certificate = Text(from->client_certificate);
  client.client_key = Text(from->client_key);
  client.server_name = Text(from->server_name);
  client.token = Text(from->token);
  client.balance = from->balance != 0;
  client.allow_token_without_tls = from->allow_token_without_tls != 0;
  if (from->door != nullptr) to.door = from->door;
  const auto milliseconds = [](int64_t value, std::chrono::milliseconds* to) {
    if (value != 0) *to = std::chrono::milliseconds(value);
  };
  milliseconds(from->stall_timeout_ms, &client.stall_timeout);
  milliseconds(from->initial_backoff_ms, &client.retry.initial_backoff);
  milliseconds(from->max_backoff_ms, &client.retry.max_backoff);
  if (from->connections != 0) client.connections = from->connections;
  if (from->max_attempts != 0) client.retry.max_attempts = from->max_attempts;
  if (from->max_async_calls != 0) to.max_async_calls = from->max_async_calls;
  if (to.max_async_calls < 1) {
    return InvalidField("max_async_calls", absl::StrCat(to.max_async_calls),
                        ">= 1");
  }
  return to;
}

}  // namespace attendant::client
