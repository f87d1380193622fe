// What a subcommand is: a row of a table that help, shell completion and the
// dispatcher read.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/cpp/cli/flags.h"

namespace attendant::client::cli {

// Documented in --help; scripts rely on them.
enum ExitCode : int {
  kOk = 0,
  kCheckFailed = 1,   // check: outside the tolerance; bench: some calls failed
  kUsage = 2,         // flags or files
  kRefused = 3,       // the server refused the request: it never succeeds
  kUnavailable = 4,   // not reachable, overloaded, too late, cancelled
  kInternalError = 5  // the server or the client is at fault
};
ExitCode ExitCodeOf(const absl::Status& call_status);

struct Command {
  std::string name;
  std::string arguments;  // behind the flags: "[FILE...]"; empty = none taken
  std::string summary;    // one line
  std::string details;    // more lines for --help, or empty
  std::string examples;   // lines without indentation
  std::vector<FlagSpec> flags;
  // Prints to stdout, errors to stderr; the exit code.
  int (*run)(const Flags& flags);
};

// What "attendant COMMAND --help" prints.
std::string HelpOf(const Command& command);

// Parses, answers --help, refuses arguments that the command does not take.
int RunCommand(const Command& command,
               const std::vector<std::string>& arguments);

// The error to stderr; `code`.
int Fail(const absl::Status& status, ExitCode code);
void Print(const std::string& text);

std::vector<FlagSpec> JoinFlags(
    std::initializer_list<std::span<const FlagSpec>> tables);

}  // namespace attendant::client::cli
