// A system that has no thread left, for one of its threads.
#pragma once

namespace attendant::client {

// While it lives, std::thread and std::jthread throw in the thread that made
// it. Others get their threads, and so does gRPC.
class NoMoreThreads {
 public:
  NoMoreThreads();
  ~NoMoreThreads();
  NoMoreThreads(const NoMoreThreads&) = delete;
  NoMoreThreads& operator=(const NoMoreThreads&) = delete;
};

}  // namespace attendant::client
