// The attendant command: every subcommand, and the choice among them.
#pragma once

#include <string>
#include <vector>

#include "client/cpp/cli/command.h"

namespace attendant::client::cli {

// In the order of the help.
const std::vector<Command>& Commands();

// The first argument names the command; none or an unknown one gets the help.
int RunCommandLine(const std::vector<std::string>& arguments);

}  // namespace attendant::client::cli
