// The command's subcommands. Each prints to stdout, errors to stderr, and
// returns the exit code.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace attendant::client::cli {

// Documented in --help; scripts rely on them.
enum ExitCode : int {
  kOk = 0,
  kCheckFailed = 1,   // the answer is outside the tolerance
  kUsage = 2,         // flags or files
  kRefused = 3,       // the server refused the request: it never succeeds
  kUnavailable = 4,   // not reachable, overloaded, too late, cancelled
  kInternalError = 5  // the server or the client is at fault
};
ExitCode ExitCodeOf(const absl::Status& call_status);

int AttendCommand(const std::vector<std::string>& arguments);
int CheckCommand(const std::vector<std::string>& arguments);
int InfoCommand(const std::vector<std::string>& arguments);

// "attend", "check" or "info" to its command; the rest gets the help.
int RunCommand(const std::vector<std::string>& arguments);

}  // namespace attendant::client::cli
