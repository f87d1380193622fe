// How much a peer may send on one connection before it hears from the server.
//
// gRPC 1.51 has one argument for the window of a stream, and none for that of
// the connection, which binds: 64 KiB, and up to 1 MiB more for a message once
// its size is known. A sender of 1.5 MB so waits for the larger window, and is
// told of every 32 KiB that were taken. Only gRPC's tuner makes it larger, by
// what it measures, which bounds no memory; but it asks a variable of gRPC's
// tests for another opinion first, and connection_window.cc gives one.
#pragma once

#include <cstdint>

namespace attendant::server {

// Gives connections and streams whose tuner is on (GRPC_ARG_HTTP2_BDP_PROBE)
// windows of `bytes`, from now on, in the whole process. False, and nothing is
// changed, if this gRPC has no such variable. Any thread.
bool FixConnectionWindow(int64_t bytes);

}  // namespace attendant::server
