// What the kernel still has to deliver for this process.
#pragma once

#include <cstdint>

namespace attendant::server {

// Bytes written to sockets of this process that their peers have not yet
// acknowledged (TCP) or read (unix sockets). Linux; 0 where /proc is missing.
int64_t UndeliveredSocketBytes();

}  // namespace attendant::server
