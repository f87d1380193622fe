// A server's answer against the double-precision oracle.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/attend_args.h"

namespace attendant::client::cli {

// The tolerance is
//   max |O - O64| <= 2 * max |O_plain - O64| + 1e-5 * max |V|
//   |LSE - LSE64| <= 1e-3 (16-bit compute) or 1e-5 * max(1, |LSE64|) (fp32)
// where O_plain is the same-precision implementation without tiling.
struct CheckReport {
  double out_error = 0;    // max |O - O64|
  double plain_error = 0;  // max |O_plain - O64|
  double out_bound = 0;
  std::string worst;  // "[0, 17, 3, 5]: 0.25, oracle 0.5", of O
  bool lse_checked = false;
  double lse_error = 0;  // largest share of its bound, times the bound
  double lse_bound = 0;  // of that element
  // NaN, inf or -inf in one and not in the other, in O and LSE.
  int64_t misplaced = 0;
  int64_t elements = 0;

  bool passed() const {
    return misplaced == 0 && out_error <= out_bound && lse_error <= lse_bound;
  }
};

// INVALID_ARGUMENT if the request is none; INTERNAL if the answer has another
// shape than the contract says.
// `progress`, if given, is told the share (0..1) that is done.
absl::StatusOr<CheckReport> CheckAnswer(
    const AttendArgs& args, const AttendResult& result,
    const std::function<void(double)>& progress = {});

}  // namespace attendant::client::cli
