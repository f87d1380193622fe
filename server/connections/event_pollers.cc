#include "server/connections/event_pollers.h"

#include <dlfcn.h>
#include <grpc/grpc.h>
#include <grpc/support/time.h>
#include <pthread.h>

#include <atomic>
#include <cstring>
#include <utility>

#include "server/connections/poll_turns.h"

namespace attendant::server {
namespace {

using NextFunction = grpc_event (*)(grpc_completion_queue*, gpr_timespec,
                                    void*);

// As long as gRPC's own threads wait.
constexpr int64_t kWaitMs = 1000;

// Set once, never destroyed: gRPC's threads outlive main().
std::atomic<PollTurns*> g_turns{nullptr};

NextFunction LibrarysNext() {
  static const auto next = reinterpret_cast<NextFunction>(
      dlsym(RTLD_NEXT, "grpc_completion_queue_next"));
  return next;
}

// Of the threads that run callbacks.
bool IsCallbackThread() {
  thread_local const bool is_one = [] {
    char name[16] = {};
    return pthread_getname_np(pthread_self(), name, sizeof(name)) == 0 &&
           std::strcmp(name, "nexting_thread") == 0;
  }();
  return is_one;
}

gpr_timespec WaitUntil() {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_millis(kWaitMs, GPR_TIMESPAN));
}

PollTurns::Found FoundOf(const grpc_event& event) {
  switch (event.type) {
    case GRPC_OP_COMPLETE:
      return PollTurns::Found::kEvent;
    case GRPC_QUEUE_TIMEOUT:
      return PollTurns::Found::kNothing;
    case GRPC_QUEUE_SHUTDOWN:
      break;
  }
  return PollTurns::Found::kTheEnd;
}

}  // namespace

void GiveTurnsToPollers(std::chrono::microseconds watchful,
                        std::function<bool()> crowded) {
  if (watchful.count() <= 0) return;
  g_turns =
      new PollTurns({.watchful = watchful, .crowded = std::move(crowded)});
}

extern "C" grpc_event grpc_completion_queue_next(grpc_completion_queue* queue,
                                                 gpr_timespec deadline,
                                                 void* reserved) {
  PollTurns* const turns = g_turns.load(std::memory_order_acquire);
  if (turns == nullptr || !IsCallbackThread()) {
    return LibrarysNext()(queue, deadline, reserved);
  }
  grpc_event event{};
  turns->Next([&](bool wait) {
    event = LibrarysNext()(
        queue, wait ? WaitUntil() : gpr_time_0(GPR_CLOCK_MONOTONIC), reserved);
    return FoundOf(event);
  });
  return event;
}

}  // namespace attendant::server
