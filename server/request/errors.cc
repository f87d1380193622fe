#include "server/request/errors.h"

#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace attendant::server {
namespace {

constexpr char kDetailUrl[] = "type.googleapis.com/attendant.v1.ErrorDetail";
constexpr char kRetryUrl[] = "attendant/retry-pushback-ms";

absl::Status FieldError(absl::StatusCode code, const std::string& field,
                        const std::string& value, const std::string& bound) {
  const std::string short_value = value.empty() ? "empty" : Shortened(value);
  const std::string subject =
      field.empty() ? short_value
                    : absl::StrCat(Shortened(field), " is ", short_value);
  return WithDetail(
      absl::Status(code, absl::StrCat(subject, ", must be ", bound)), field,
      value.empty() ? short_value : value, bound);
}

// For an error that is about no field of the request.
v1::ErrorDetail DetailByCode(const absl::Status& status) {
  v1::ErrorDetail detail;
  detail.set_value(Shortened(std::string(status.message())));
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      detail.set_field("message");
      detail.set_bound("one well-formed request");
      break;
    case absl::StatusCode::kDeadlineExceeded:
      detail.set_field("deadline");
      detail.set_bound("after the answer is ready");
      break;
    case absl::StatusCode::kCancelled:
      detail.set_field("call");
      detail.set_bound("open until the answer is ready");
      break;
    default:
      detail.set_field("server");
      detail.set_bound("ready: neither draining nor failed");
      break;
  }
  return detail;
}

}  // namespace

std::string Shortened(const std::string& text) {
  // Trailers share 8 KiB with everything else.
  constexpr size_t kMaxBytes = 160;
  if (text.size() <= kMaxBytes) return text;
  const auto continues = [&](size_t at) { return (text[at] & 0xc0) == 0x80; };
  size_t end = kMaxBytes;
  while (end > 0 && continues(end)) --end;
  return absl::StrCat(text.substr(0, end), "... (", text.size(), " bytes)");
}

absl::Status InvalidField(const std::string& field, const std::string& value,
                          const std::string& bound) {
  return FieldError(absl::StatusCode::kInvalidArgument, field, value, bound);
}

absl::Status UnimplementedField(const std::string& field,
                                const std::string& value,
                                const std::string& bound) {
  return FieldError(absl::StatusCode::kUnimplemented, field, value, bound);
}

absl::Status Overloaded(const std::string& field, const std::string& value,
                        const std::string& bound, int64_t retry_ms) {
  absl::Status status =
      FieldError(absl::StatusCode::kResourceExhausted, field, value, bound);
  status.SetPayload(kRetryUrl, absl::Cord(absl::StrCat(retry_ms)));
  return status;
}

absl::Status WithDetail(absl::Status status, const std::string& field,
                        const std::string& value, const std::string& bound) {
  v1::ErrorDetail detail;
  detail.set_field(Shortened(field));
  detail.set_value(Shortened(value));
  detail.set_bound(bound);
  status.SetPayload(kDetailUrl, absl::Cord(detail.SerializeAsString()));
  return status;
}

std::optional<v1::ErrorDetail> DetailOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kDetailUrl);
  v1::ErrorDetail detail;
  if (!payload.has_value() ||
      !detail.ParseFromString(std::string(payload.value()))) {
    return std::nullopt;
  }
  return detail;
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // absl's codes are gRPC's, number by number.
  const auto code = static_cast<grpc::StatusCode>(status.code());
  const std::string message(status.message());
  v1::RpcStatus rpc_status;
  rpc_status.set_code(static_cast<int>(code));
  rpc_status.set_message(message);
  rpc_status.add_details()->PackFrom(
      DetailOf(status).value_or(DetailByCode(status)));
  return grpc::Status(code, message, rpc_status.SerializeAsString());
}

int64_t RetryPushbackMs(const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryUrl);
  int64_t retry_ms = -1;
  if (!payload.has_value() ||
      !absl::SimpleAtoi(std::string(payload.value()), &retry_ms)) {
    return -1;
  }
  return retry_ms;
}

}  // namespace attendant::server
