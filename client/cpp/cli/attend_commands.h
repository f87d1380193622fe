// attend, check and info: one call each.
#pragma once

#include "client/cpp/cli/command.h"

namespace attendant::client::cli {

Command AttendCommand();
Command CheckCommand();
Command InfoCommand();

}  // namespace attendant::client::cli
