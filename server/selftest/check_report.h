// The table that a self-test prints, a line a check.
#pragma once

#include <cstdio>
#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace attendant::server {

class CheckReport {
 public:
  // `out` outlives this object.
  explicit CheckReport(std::FILE* out) : out_(out) {}

  // Runs one check and prints its verdict, what it says of itself, and the
  // seconds it took: "ok", "FAIL" for an error, "n/a" for UNIMPLEMENTED (there
  // is nothing of the kind to be checked here). Errors end nothing.
  void Run(const std::string& name,
           const std::function<absl::StatusOr<std::string>()>& check);

  // Prints the last line. True if nothing failed.
  bool Finish() const;

 private:
  std::FILE* const out_;
  int passed_ = 0;
  int failed_ = 0;
  double seconds_ = 0;
};

}  // namespace attendant::server
