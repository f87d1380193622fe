// How much a TCP connection of this process has received.
#pragma once

#include <cstdint>
#include <string>

namespace attendant::server {

// The socket connected to `peer` ("ipv4:1.2.3.4:5", "ipv6:%5B::1%5D:5", as gRPC
// names it); -1 if this process has none, or for other kinds of peers. Looks at
// every descriptor.
int FindSocket(const std::string& peer);

// Bytes that the kernel has received on `socket` since it was connected; -1 if
// it is not connected to `peer` (any more).
int64_t ReceivedBytes(int socket, const std::string& peer);

}  // namespace attendant::server
