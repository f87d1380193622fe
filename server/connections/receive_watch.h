// Ends calls that send more than a message may have. gRPC buffers a message
// whole before anyone sees its size, so what piles up is seen from outside: the
// bytes that the kernel received on a connection, without those of messages
// that were handed over. TCP only: on a unix socket callers are local.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace attendant::server {

class ReceiveWatch {
 public:
  // What a connection may hold beside its messages: the kernel's and gRPC's
  // buffers, and what arrives between two looks.
  static constexpr int64_t kSlackBytes = int64_t{16} << 20;

  explicit ReceiveWatch(int64_t window_bytes);
  // Calls must be gone.
  ~ReceiveWatch();
  ReceiveWatch(const ReceiveWatch&) = delete;
  ReceiveWatch& operator=(const ReceiveWatch&) = delete;

 private:
  struct Connection;
  struct Entry {
    int64_t allowed = 0;
    int64_t received = -1;  // on its connection, when it came
    std::function<void()> cut_off;
  };

 public:
  // A call whose messages are watched, from construction to destruction. All
  // members are thread-safe.
  class Call {
   public:
    // `peer` as grpc::ServerContextBase::peer(). `cut_off` is called on the
    // watch's thread with no lock held, once at most, if the connection holds
    // more than its calls' `allowed` bytes; it must not own the call.
    Call(ReceiveWatch* watch, const std::string& peer, int64_t allowed,
         std::function<void()> cut_off);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    // A message came whole; the next may have `allowed` bytes.
    void Delivered(int64_t bytes, int64_t allowed);

   private:
    ReceiveWatch* const watch_;
    const std::shared_ptr<Connection> connection_;
    uint64_t number_ = 0;  // constant after construction
  };

 private:
  std::shared_ptr<Connection> Find(const std::string& peer);
  void Run();
  // mu_ held. Calls to end are moved to *due.
  void Look(std::map<uint64_t, std::function<void()>>* due);

  const int64_t window_bytes_;
  std::mutex mu_;  // guards all that follows
  std::condition_variable woken_;
  std::map<std::string, std::shared_ptr<Connection>> connections_;
  uint64_t next_number_ = 0;
  int64_t num_calls_ = 0;
  bool asleep_ = false;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace attendant::server
