// Many callers at once, and a tally of how their calls ended.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "attendant/v1/attention.grpc.pb.h"

namespace attendant::testing {

// Calls begun, and ended by gRPC code. Any thread.
struct Tally {
  std::atomic<int64_t> begun{0};
  std::array<std::atomic<int64_t>, 17> ended{};

  int64_t all_ended() const;
  int64_t ended_with(int code) const { return ended[code].load(); }
};

struct LoadOptions {
  std::string address;
  int threads = 8;         // each with a connection of its own
  int64_t requests = 100;  // in all
  uint64_t seed = 1;
  // Called before a call; may set a deadline or cancel it later. `number` is
  // the call's, 0 .. requests - 1.
  std::function<void(int64_t number, grpc::ClientContext*)> prepare;
  // Called on the caller's thread after each call that ended with OK.
  std::function<void(size_t which, const v1::AttendResponse&)> check;
  // Called after each call; false = this caller stops.
  std::function<bool(int64_t number, const grpc::Status&)> ended;
};

// Sends requests[random] until all are sent. Blocks.
void RunLoad(const LoadOptions& options,
             const std::vector<v1::AttendRequest>& requests, Tally* tally);

}  // namespace attendant::testing
