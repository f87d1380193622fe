// attendant plot: bench JSON -> SVG.
#pragma once

#include "client/cpp/cli/command.h"

namespace attendant::client::cli {

Command PlotCommand();

}  // namespace attendant::client::cli
