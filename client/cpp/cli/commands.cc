#include "client/cpp/cli/commands.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cpp/cli/attend_commands.h"
#include "client/cpp/cli/bench/bench_command.h"
#include "client/cpp/cli/completion.h"
#include "client/cpp/cli/plot/plot_command.h"
#include "client/cpp/cli/watch/watch_command.h"

namespace attendant::client::cli {
namespace {

constexpr char kExitCodes[] = R"(
attendant COMMAND --help shows flags and examples; attendant --version.

Exit codes
  0  done; check: the answer is within the tolerance
  1  check: the answer is outside the tolerance; bench: some calls failed
  2  flags or files are wrong; nothing was sent
  3  the server refused the request: it would never succeed
  4  not reachable, overloaded, too late or cancelled: it may succeed later
  5  the server or this command is at fault
)";

std::string MainHelp() {
  std::string text = "attendant: exact attention from an Attendant server\n\n";
  for (const Command& command : Commands()) {
    absl::StrAppendFormat(&text, "  attendant %-10s %s\n", command.name,
                          command.summary);
  }
  return text + kExitCodes;
}

}  // namespace

const std::vector<Command>& Commands() {
  static const std::vector<Command> commands = {
      AttendCommand(), CheckCommand(), InfoCommand(),      BenchCommand(),
      PlotCommand(),   WatchCommand(), CompletionCommand()};
  return commands;
}

int RunCommandLine(const std::vector<std::string>& arguments) {
  const std::string name = arguments.empty() ? "" : arguments[0];
  for (const Command& command : Commands()) {
    if (command.name == name) {
      return RunCommand(command, {arguments.begin() + 1, arguments.end()});
    }
  }
  if (name == "help" || name == "--help" || name == "-h") {
    Print(MainHelp());
    return kOk;
  }
  if (name == "--version") {
    Print(absl::StrCat("attendant ", ATTENDANT_VERSION, "\n"));
    return kOk;
  }
  std::fputs(MainHelp().c_str(), stderr);
  if (!name.empty()) {
    std::fprintf(stderr, "\nattendant: there is no command '%s'\n",
                 name.c_str());
  }
  return kUsage;
}

}  // namespace attendant::client::cli
