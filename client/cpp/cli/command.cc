#include "client/cpp/cli/command.h"

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "client/cpp/cli/report.h"
#include "client/cpp/client_error.h"

namespace attendant::client::cli {
namespace {

std::string Indented(const std::string& text) {
  std::string lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    absl::StrAppend(&lines, "  ", text.substr(begin, end - begin), "\n");
    begin = end + 1;
  }
  return lines;
}

}  // namespace

ExitCode ExitCodeOf(const absl::Status& call_status) {
  switch (call_status.code()) {
    case absl::StatusCode::kOk:
      return kOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return kRefused;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kAborted:
      return kUnavailable;
    default:
      return kInternalError;
  }
}

std::string HelpOf(const Command& command) {
  std::string text =
      absl::StrCat("attendant ", command.name, " [FLAG...]",
                   command.arguments.empty() ? "" : " " + command.arguments,
                   "\n\n", command.summary, "\n");
  if (!command.details.empty()) absl::StrAppend(&text, "\n", command.details);
  absl::StrAppend(&text, "\nFlags\n", HelpLines(command.flags));
  absl::StrAppend(&text, "\nExamples\n", Indented(command.examples));
  absl::StrAppend(&text, "\nExit codes: attendant --help\n");
  return text;
}

int RunCommand(const Command& command,
               const std::vector<std::string>& arguments) {
  const absl::StatusOr<Flags> flags = Flags::Parse(arguments, command.flags);
  if (!flags.ok()) return Fail(flags.status(), kUsage);
  if (flags->Switch("help")) {
    Print(HelpOf(command));
    return kOk;
  }
  if (command.arguments.empty() && !flags->positional().empty()) {
    return Fail(InvalidField("argument", flags->positional()[0],
                             "a flag: this command takes nothing else"),
                kUsage);
  }
  return command.run(*flags);
}

int Fail(const absl::Status& status, ExitCode code) {
  std::fputs(ErrorText(status).c_str(), stderr);
  return code;
}

void Print(const std::string& text) { std::fputs(text.c_str(), stdout); }

std::vector<FlagSpec> JoinFlags(
    std::initializer_list<std::span<const FlagSpec>> tables) {
  std::vector<FlagSpec> joined;
  for (const std::span<const FlagSpec> table : tables) {
    joined.insert(joined.end(), table.begin(), table.end());
  }
  return joined;
}

}  // namespace attendant::client::cli
