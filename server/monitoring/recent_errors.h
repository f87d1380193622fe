// The last Attend calls that failed, for /statusz.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "server/engine/attention_engine.h"

namespace attendant::server {

struct RecentError {
  std::chrono::system_clock::time_point time;
  std::string request_id;         // as sent; empty if the call failed before it
  int code = 0;                   // a grpc::StatusCode
  Stage stage = Stage::kReceive;  // the last one reached
  std::string message;            // at most kMaxMessage bytes
};

// Thread-safe; holds kCapacity errors at most and forgets the oldest.
class RecentErrors {
 public:
  static constexpr size_t kCapacity = 32;
  static constexpr size_t kMaxMessage = 512;

  // Longer messages are cut and end with "...".
  void Add(RecentError error);
  std::vector<RecentError> NewestFirst() const;

 private:
  mutable std::mutex mu_;
  std::deque<RecentError> errors_;  // guarded by mu_, newest first
};

}  // namespace attendant::server
