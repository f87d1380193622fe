// What was wrong with a request, beside a status's code and text.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"

namespace attendant::client {

// "q.shape[3]", "257", "1..256". Empty parts: the error has no such part.
struct ErrorDetail {
  std::string field;
  std::string value;
  std::string bound;
};

// The detail of an error that this client or the server gave; none for errors
// of the transport.
std::optional<ErrorDetail> GetErrorDetail(const absl::Status& status);

absl::Status WithErrorDetail(absl::Status status, const ErrorDetail& detail);

// INVALID_ARGUMENT "<field> is <value>, must be <bound>" with its detail.
absl::Status InvalidField(const std::string& field, const std::string& value,
                          const std::string& bound);

}  // namespace attendant::client
