// attendant watch: a server at work, as top shows a machine.
#pragma once

#include "client/cpp/cli/command.h"

namespace attendant::client::cli {

Command WatchCommand();

}  // namespace attendant::client::cli
