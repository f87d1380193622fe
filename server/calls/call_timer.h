// A call's deadline: the earlier of the caller's and the server's default, held
// until the call is over, its reply sent and all.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/generic/async_generic_service.h>

#include <functional>
#include <mutex>

#include "absl/status/status.h"
#include "server/engine/attention_engine.h"

namespace attendant::server {

// Thread-safe after Start.
class CallTimer {
 public:
  CallTimer(grpc::GenericCallbackServerContext* context,
            int64_t default_deadline_ms);

  Clock::time_point started() const { return started_; }
  Clock::time_point deadline() const { return deadline_; }

  // A caller's own deadline cancels the call by gRPC; the server's needs a
  // clock: `expired` is called once then, unless Done came first. It must not
  // own the call, for the alarm keeps it.
  void Start(std::function<void()> expired);
  // What an OnCancel means: DEADLINE_EXCEEDED or CANCELLED.
  absl::Status WhyCancelled() const;
  static absl::Status DeadlinePassed();

  // Ends the call in gRPC, whatever is still being sent; nothing after Done.
  void CancelCall();
  // From OnDone, after which gRPC's context is gone.
  void Done();

 private:
  grpc::GenericCallbackServerContext* const context_;
  const Clock::time_point started_;
  Clock::time_point deadline_;
  bool own_deadline_ = false;  // the server's default is the earlier one
  grpc::Alarm alarm_;
  std::mutex mu_;
  bool done_ = false;  // guarded by mu_
};

}  // namespace attendant::server
