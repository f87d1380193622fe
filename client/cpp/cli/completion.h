// Shell completion, generated from the table of commands.
#pragma once

#include <span>
#include <string>

#include "client/cpp/cli/command.h"

namespace attendant::client::cli {

// Scripts that complete commands, flags, choices (values written a|b|c) and
// files (values whose name holds FILE).
std::string BashCompletion(std::span<const Command> commands);
std::string ZshCompletion(std::span<const Command> commands);

// attendant completion bash|zsh
Command CompletionCommand();

}  // namespace attendant::client::cli
