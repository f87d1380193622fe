// How gRPC's threads look for events.
//
// gRPC 1.51's callback API keeps half as many threads as there are cores in
// grpc_completion_queue_next(), and its epoll engine has each event wake the
// next of them to look on. On a virtual machine a sleeping thread takes some 30
// us to wake up: a small call spends more time on that than on its own work.
// event_pollers.cc therefore defines that function, which gRPC's library then
// calls instead of its own, and gives those threads turns (see poll_turns.h).
// All other callers of it get what the library does.
#pragma once

#include <chrono>
#include <functional>

namespace attendant::server {

// The threads take turns from now on, until the process ends. Once; before, and
// with `watchful` 0, gRPC has its way. The arguments are PollTurns::Options'.
void GiveTurnsToPollers(std::chrono::microseconds watchful,
                        std::function<bool()> crowded);

}  // namespace attendant::server
