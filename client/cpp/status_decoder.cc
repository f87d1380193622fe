#include "client/cpp/status_decoder.h"

#include "attendant/v1/error.pb.h"
#include "client/cpp/client_error.h"

namespace attendant::client {

absl::Status DecodeStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  // The codes of both are the same numbers.
  absl::Status decoded(static_cast<absl::StatusCode>(status.error_code()),
                       status.error_message());
  v1::RpcStatus details;
  if (!details.ParseFromString(status.error_details())) return decoded;
  for (const google::protobuf::Any& any : details.details()) {
    v1::ErrorDetail detail;
    if (any.Is<v1::ErrorDetail>() && any.UnpackTo(&detail)) {
      return WithErrorDetail(decoded,
                             {detail.field(), detail.value(), detail.bound()});
    }
  }
  return decoded;
}

}  // namespace attendant::client
