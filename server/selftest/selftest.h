// attendant-server --selftest: is this node fit to serve?
#pragma once

#include <cstdio>

#include "server/options/server_options.h"

namespace attendant::server {

// Checks what `options` say would be served (files of TLS and policy, the
// engine on its device, every kernel, pools, doors and regions) and prints a
// table to `out`. Serves nobody: its server listens on a free port of loopback
// for itself. Takes seconds; another server may run meanwhile, if there is
// memory for both. False if a check failed.
bool RunSelftest(const ServerOptions& options, std::FILE* out);

}  // namespace attendant::server
