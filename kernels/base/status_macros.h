// Early return on a bad absl::Status (Debian's Abseil ships no such macros).
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define ATTENDANT_CONCAT_INNER(a, b) a##b
#define ATTENDANT_CONCAT(a, b) ATTENDANT_CONCAT_INNER(a, b)

// RETURN_IF_ERROR(expression of type absl::Status);
#define RETURN_IF_ERROR(expression)                       \
  do {                                                    \
    if (absl::Status status_of_expression = (expression); \
        !status_of_expression.ok()) {                     \
      return status_of_expression;                        \
    }                                                     \
  } while (false)

// ASSIGN_OR_RETURN(auto value, expression of type absl::StatusOr<T>);
#define ASSIGN_OR_RETURN(declaration, expression)                             \
  ASSIGN_OR_RETURN_INNER(ATTENDANT_CONCAT(status_or_, __LINE__), declaration, \
                         expression)
#define ASSIGN_OR_RETURN_INNER(status_or, declaration, expression) \
  auto status_or = (expression);                                   \
  if (!status_or.ok()) return std::move(status_or).status();       \
  declaration = std::move(status_or).value()
