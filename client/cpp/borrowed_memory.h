// The caller's memory while gRPC may still read it.
#pragma once

#include <grpcpp/support/slice.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

namespace attendant::client {

// Lends memory to gRPC without a copy and knows when the last piece came back.
// A call can end (deadline, error before the body was read) while a connection
// still writes its bytes: who lent memory waits before giving it up.
class BorrowedMemory {
 public:
  BorrowedMemory() : state_(std::make_shared<State>()) {}
  BorrowedMemory(const BorrowedMemory&) = delete;
  BorrowedMemory& operator=(const BorrowedMemory&) = delete;

  grpc::Slice Lend(std::span<const std::byte> piece);
  // True if nothing is lent any more.
  bool AllReturned() const;
  void WaitUntilReturned();

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable returned;
    int64_t lent = 0;  // guarded by mutex
  };
  static void Return(void* state);

  std::shared_ptr<State> state_;
};

}  // namespace attendant::client
