// Threads that calls run on, on a system that may have none left.
#pragma once

#include <system_error>
#include <thread>
#include <utility>

namespace attendant::client {

// Runs `body` on a thread of its own, or returns a jthread that is not
// joinable: what std::jthread throws when the system has no thread left would
// leave the C interface.
template <typename Body>
std::jthread StartThread(Body body) {
  try {
    return std::jthread(std::move(body));
  } catch (const std::system_error&) {
    return std::jthread();
  }
}

}  // namespace attendant::client
