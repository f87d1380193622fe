// Keeps listening sockets alive when descriptors run out.
//
// gRPC 1.51 closes a listener for good at the first accept() that fails for any
// reason but EAGAIN (CVE-2023-4785): a crowd of connections would end the
// service for everybody who comes later. accept_guard.cc therefore defines
// accept4(), which gRPC's library then calls instead of the C library's: what
// comes while descriptors are short is closed at once, so that its sender hears
// of it, and a listener never sees another error than EAGAIN.
#pragma once

#include <cstdint>

namespace attendant::server {

// So many descriptors are kept from connections: for files that are read again,
// for HTTP and for logs.
inline constexpr int kKeptDescriptors = 32;

// Lifts the process's limit of descriptors as far as it may and starts to
// guard. Once, before anything listens.
void GuardAccept();

// Connections that were closed at once since then. Any thread.
int64_t RefusedConnections();

}  // namespace attendant::server
