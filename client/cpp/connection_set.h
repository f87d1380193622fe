// The connections to one server, and one attempt of one call over them.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/cpp/attendant_client.h"

namespace attendant::client {

using SteadyTime = std::chrono::steady_clock::time_point;

struct CallOutcome {
  absl::Status status;  // with its ErrorDetail, if the server gave one
  grpc::ByteBuffer reply;
  std::optional<std::string> pushback;
};

// The trailer grpc-retry-pushback-ms of a call that has ended.
std::optional<std::string> PushbackOf(const grpc::ClientContext& context);

// How long calls took lately, the newest weighing most; what was slow once, as
// the first call is, which connects, is soon forgotten. Thread-safe.
class UsualTime {
 public:
  void Note(std::chrono::nanoseconds time);
  // How long to look for the next answer before sleeping: twice as long as
  // usual, `most` at most; 0 if more than `most` is usual, for then it would be
  // in vain. (Not by a bound on what is looked for: calls that a look would
  // bring below it could stay above it for want of one.)
  std::chrono::microseconds TimeToLook(std::chrono::microseconds most) const;
  // 0 if there was none.
  std::chrono::nanoseconds get() const {
    return std::chrono::nanoseconds(ns_.load(std::memory_order_relaxed));
  }

 private:
  std::atomic<int64_t> ns_{0};
};

// Thread-safe. Calls take the connections in turn.
class ConnectionSet {
 public:
  // `options` has passed Client::Create's checks.
  ConnectionSet(std::string target, const ClientOptions& options);

  // `method` is "/package.Service/Method". Blocks until the call has ended.
  CallOutcome Call(const std::string& method, const grpc::ByteBuffer& request,
                   SteadyTime deadline, const std::stop_token& stop);

  // For calls made by others: one connection (the next in turn), or `count`
  // different ones, made when first asked for.
  std::vector<std::shared_ptr<grpc::Channel>> Take(int count);
  // Sets deadline and token.
  void Prepare(grpc::ClientContext* context, SteadyTime deadline) const;

 private:
  std::shared_ptr<grpc::Channel> MakeChannel() const;

  const std::string target_;
  const ClientOptions options_;
  UsualTime usual_;  // of answered calls
  std::mutex mutex_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;  // guarded by mutex_
  size_t next_ = 0;                                       // guarded by mutex_
};

}  // namespace attendant::client
