// gRPC's own messages, as lines of our log: its threads must not wait for who
// reads stderr either.
#pragma once

namespace attendant::server {

// For the whole process.
void TakeGrpcLog();

}  // namespace attendant::server
