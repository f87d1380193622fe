#include "client/cpp/c_api/c_error.h"

#include <string>

#include "client/cpp/client_error.h"

namespace attendant::client {
namespace {

struct OwnedError : attendant_error {
  std::string text;
  ErrorDetail detail;
};

}  // namespace

attendant_error* MakeError(const absl::Status& status) {
  if (status.ok()) return nullptr;
  auto* error = new OwnedError;
  error->text = std::string(status.message());
  error->detail = GetErrorDetail(status).value_or(ErrorDetail{});
  error->code = static_cast<int32_t>(status.code());
  error->message = error->text.c_str();
  error->field = error->detail.field.c_str();
  error->value = error->detail.value.c_str();
  error->bound = error->detail.bound.c_str();
  return error;
}

}  // namespace attendant::client

extern "C" void attendant_error_free(attendant_error* error) {
  delete static_cast<attendant::client::OwnedError*>(error);
}
