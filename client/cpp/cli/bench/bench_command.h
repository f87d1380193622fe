// attendant bench: a load generator over every door.
#pragma once

#include "client/cpp/cli/command.h"

namespace attendant::client::cli {

Command BenchCommand();

}  // namespace attendant::client::cli
