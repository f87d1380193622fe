#include "client/cpp/client_error.h"

#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace attendant::client {
namespace {

// One payload a part, so that no part needs escaping.
constexpr char kField[] = "attendant/error.field";
constexpr char kValue[] = "attendant/error.value";
constexpr char kBound[] = "attendant/error.bound";

std::string Part(const absl::Status& status, const char* url) {
  const auto payload = status.GetPayload(url);
  return payload.has_value() ? std::string(*payload) : std::string();
}

}  // namespace

std::optional<ErrorDetail> GetErrorDetail(const absl::Status& status) {
  if (!status.GetPayload(kField).has_value()) return std::nullopt;
  return ErrorDetail{Part(status, kField), Part(status, kValue),
                     Part(status, kBound)};
}

absl::Status WithErrorDetail(absl::Status status, const ErrorDetail& detail) {
  status.SetPayload(kField, absl::Cord(detail.field));
  status.SetPayload(kValue, absl::Cord(detail.value));
  status.SetPayload(kBound, absl::Cord(detail.bound));
  return status;
}

absl::Status InvalidField(const std::string& field, const std::string& value,
                          const std::string& bound) {
  return WithErrorDetail(absl::InvalidArgumentError(absl::StrCat(
                             field, " is ", value, ", must be ", bound)),
                         {field, value, bound});
}

}  // namespace attendant::client
