#include "server/selftest/check_report.h"

#include <chrono>

namespace attendant::server {

void CheckReport::Run(
    const std::string& name,
    const std::function<absl::StatusOr<std::string>()>& check) {
  // The name first, so that a check that never ends has one.
  std::fprintf(out_, "%-28s ", name.c_str());
  std::fflush(out_);
  const auto begin = std::chrono::steady_clock::now();
  const absl::StatusOr<std::string> result = check();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
          .count();
  seconds_ += seconds;
  const bool absent = absl::IsUnimplemented(result.status());
  passed_ += result.ok() ? 1 : 0;
  failed_ += result.ok() || absent ? 0 : 1;
  const std::string text =
      result.ok() ? *result : std::string(result.status().message());
  std::fprintf(out_, "%-4s %6.2f s  %s\n",
               result.ok() ? "ok" : (absent ? "n/a" : "FAIL"), seconds,
               text.c_str());
  std::fflush(out_);
}

bool CheckReport::Finish() const {
  if (failed_ == 0) {
    std::fprintf(out_, "PASS: %d checks in %.1f s\n", passed_, seconds_);
  } else {
    std::fprintf(out_, "FAIL: %d of %d checks failed, in %.1f s\n", failed_,
                 passed_ + failed_, seconds_);
  }
  std::fflush(out_);
  return failed_ == 0;
}

}  // namespace attendant::server
