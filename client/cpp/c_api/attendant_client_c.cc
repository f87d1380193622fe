#include "client/cpp/c_api/attendant_client_c.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "client/cpp/attendant_client.h"
#include "client/cpp/c_api/c_args.h"
#include "client/cpp/c_api/c_error.h"
#include "client/cpp/c_api/c_result.h"
#include "client/cpp/c_api/call_threads.h"
#include "client/cpp/client_error.h"
#include "client/cpp/door.h"

namespace {

using attendant::client::AttendArgs;
using attendant::client::AttendResult;
using attendant::client::CallThreads;
using attendant::client::CClientOptions;
using attendant::client::Client;
using attendant::client::Door;
using attendant::client::InvalidField;
using attendant::client::MakeError;
using attendant::client::MakeResult;
using attendant::client::TensorView;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;

struct Outcome {
  attendant_error* error = nullptr;
  attendant_result* result = nullptr;
};

// Shared by the caller's handle and the thread that runs the call.
struct CallState {
  ~CallState() {
    if (!outcome.has_value()) return;
    attendant_error_free(outcome->error);
    attendant_result_free(outcome->result);
  }

  std::stop_source stop;
  std::mutex mutex;
  std::condition_variable ended_changed;
  bool ended = false;              // guarded by mutex
  std::optional<Outcome> outcome;  // guarded by mutex; none once taken
};

attendant_error* NullArgument(const char* name) {
  return MakeError(InvalidField(name, "null", "given"));
}

}  // namespace

struct attendant_cancel {
  std::stop_source stop;
};

// Its answer's pointers lead into memory that `args` names.
struct attendant_prepared {
  AttendArgs args;
  attendant_placed placed{};
};

struct attendant_call {
  std::shared_ptr<CallState> state;
};

struct attendant_client {
  attendant_client(Client connected, std::unique_ptr<Door> opened,
                   int max_async_calls)
      : client(std::move(connected)),
        door(std::move(opened)),
        device_tensors(door->capabilities().device_tensors),
        threads(max_async_calls) {}

  Outcome Attend(const AttendArgs& args, nanoseconds timeout,
                 const std::stop_token& token) const {
    absl::StatusOr<AttendResult> answer = door->Attend(args, timeout, token);
    if (!answer.ok()) return {MakeError(answer.status()), nullptr};
    return {nullptr, MakeResult(*std::move(answer))};
  }

  const Client client;  // for GetServerInfo
  const std::unique_ptr<Door> door;
  const bool device_tensors;
  std::stop_source all_stop;
  CallThreads threads;  // last: its calls use what stands above
};

namespace {

// Once: Debian's Abseil looks for cycles in the order of locks at every lock
// that gRPC takes, a tenth of a small call's instructions.
void LookForNoLockCycles() {
  static const bool done = [] {
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    return true;
  }();
  static_cast<void>(done);
}

attendant_placed PlacesOf(const AttendArgs& args) {
  const auto tensor = [](const TensorView& view) {
    return const_cast<void*>(view.data);
  };
  attendant_placed placed{};
  placed.q = tensor(args.q);
  placed.k = tensor(args.k);
  placed.v = tensor(args.v);
  placed.qkv = tensor(args.qkv);
  placed.mask = tensor(args.mask);
  placed.out = args.out.data();
  placed.lse = args.lse.data();
  return placed;
}

// One call on its caller's thread.
attendant_error* Answer(const attendant_client& client, const AttendArgs& args,
                        int64_t timeout_ns, const attendant_cancel* cancel,
                        attendant_result** result) {
  const std::stop_token stop =
      cancel == nullptr ? std::stop_token() : cancel->stop.get_token();
  if (stop.stop_requested()) {
    return MakeError(absl::CancelledError("the call was cancelled"));
  }
  const Outcome outcome = client.Attend(args, nanoseconds(timeout_ns), stop);
  *result = outcome.result;
  return outcome.error;
}

// One asynchronous call, on a thread of the library.
void RunCall(const attendant_client* client, const AttendArgs& args,
             steady_clock::time_point deadline, attendant_callback callback,
             void* user_data, const std::shared_ptr<CallState>& state) {
  const std::stop_callback all_end(client->all_stop.get_token(),
                                   [&] { state->stop.request_stop(); });
  Outcome outcome;
  const nanoseconds left = deadline - steady_clock::now();
  if (state->stop.stop_requested()) {
    outcome.error = MakeError(absl::CancelledError("the call was cancelled"));
  } else if (left <= nanoseconds(0)) {
    outcome.error = MakeError(
        absl::DeadlineExceededError("no thread was free before the deadline"));
  } else {
    outcome = client->Attend(args, left, state->stop.get_token());
  }
  if (callback != nullptr) {
    callback(user_data, outcome.error, outcome.result);
    outcome = {};
  }
  std::lock_guard lock(state->mutex);
  state->ended = true;
  if (callback == nullptr) state->outcome = outcome;
  state->ended_changed.notify_all();
}

}  // namespace

extern "C" {

int32_t attendant_abi_version(void) { return ATTENDANT_ABI_VERSION; }

const char* attendant_version(void) { return ATTENDANT_VERSION; }

attendant_error* attendant_client_create(const char* target,
                                         const attendant_client_options* given,
                                         attendant_client** client) {
  if (client == nullptr) return NullArgument("client");
  *client = nullptr;
  if (target == nullptr) return NullArgument("target");
  LookForNoLockCycles();
  absl::StatusOr<CClientOptions> options =
      attendant::client::ToClientOptions(given);
  if (!options.ok()) return MakeError(options.status());
  absl::StatusOr<Client> connected = Client::Create(target, options->client);
  if (!connected.ok()) return MakeError(connected.status());
  absl::StatusOr<std::unique_ptr<Door>> door =
      attendant::client::OpenDoor(options->door, target, options->client);
  if (!door.ok()) return MakeError(door.status());
  *client = new attendant_client(*std::move(connected), *std::move(door),
                                 options->max_async_calls);
  return nullptr;
}

void attendant_client_free(attendant_client* client) {
  if (client == nullptr) return;
  client->all_stop.request_stop();
  delete client;
}

attendant_cancel* attendant_cancel_create(void) { return new attendant_cancel; }

void attendant_cancel_request(attendant_cancel* cancel) {
  cancel->stop.request_stop();
}

void attendant_cancel_free(attendant_cancel* cancel) { delete cancel; }

attendant_error* attendant_attend(attendant_client* client,
                                  const attendant_attend_args* given,
                                  int64_t timeout_ns, attendant_cancel* cancel,
                                  attendant_result** result) {
  if (client == nullptr) return NullArgument("client");
  if (result == nullptr) return NullArgument("result");
  *result = nullptr;
  const absl::StatusOr<AttendArgs> args =
      attendant::client::ToAttendArgs(given, client->device_tensors);
  if (!args.ok()) return MakeError(args.status());
  return Answer(*client, *args, timeout_ns, cancel, result);
}

attendant_error* attendant_prepare(attendant_client* client,
                                   const attendant_attend_args* given,
                                   attendant_prepared** prepared) {
  if (client == nullptr) return NullArgument("client");
  if (prepared == nullptr) return NullArgument("prepared");
  *prepared = nullptr;
  const absl::StatusOr<AttendArgs> args =
      attendant::client::ToAttendArgs(given, client->device_tensors);
  if (!args.ok()) return MakeError(args.status());
  if (args->out.data() == nullptr) return NullArgument("out");
  if (args->return_lse && args->lse.data() == nullptr) {
    return NullArgument("lse");
  }
  absl::StatusOr<AttendArgs> placed = client->door->Prepare(*args);
  if (!placed.ok()) return MakeError(placed.status());
  if (client->door->name() == "ipc" && placed->out.data() != args->out.data()) {
    return MakeError(
        InvalidField("q.device_type", "the host's",
                     "a GPU's, for a prepared call of door 'ipc'"));
  }
  *prepared = new attendant_prepared{*std::move(placed)};
  (*prepared)->placed = PlacesOf((*prepared)->args);
  return nullptr;
}

const attendant_placed* attendant_prepared_memory(
    const attendant_prepared* prepared) {
  return &prepared->placed;
}

attendant_error* attendant_attend_prepared(attendant_client* client,
                                           attendant_prepared* prepared,
                                           int64_t timeout_ns,
                                           attendant_cancel* cancel,
                                           attendant_result** result) {
  if (client == nullptr) return NullArgument("client");
  if (prepared == nullptr) return NullArgument("prepared");
  if (result == nullptr) return NullArgument("result");
  *result = nullptr;
  return Answer(*client, prepared->args, timeout_ns, cancel, result);
}

void attendant_prepared_free(attendant_prepared* prepared) { delete prepared; }

attendant_error* attendant_attend_start(attendant_client* client,
                                        const attendant_attend_args* given,
                                        int64_t timeout_ns,
                                        attendant_callback callback,
                                        void* user_data,
                                        attendant_call** call) {
  if (client == nullptr) return NullArgument("client");
  if (call == nullptr && callback == nullptr) return NullArgument("call");
  if (call != nullptr) *call = nullptr;
  absl::StatusOr<AttendArgs> args =
      attendant::client::ToAttendArgs(given, client->device_tensors);
  if (!args.ok()) return MakeError(args.status());
  if (timeout_ns <= 0) {
    return MakeError(
        InvalidField("timeout", absl::StrCat(timeout_ns, " ns"), "> 0 ns"));
  }
  const auto deadline =
      steady_clock::now() +
      std::min<nanoseconds>(nanoseconds(timeout_ns), std::chrono::hours(24));
  auto state = std::make_shared<CallState>();
  if (call != nullptr) *call = new attendant_call{state};
  const absl::Status begun =
      client->threads.Run([client, args = *std::move(args), deadline, callback,
                           user_data, state = std::move(state)] {
        RunCall(client, args, deadline, callback, user_data, state);
      });
  if (begun.ok()) return nullptr;
  if (call != nullptr) delete std::exchange(*call, nullptr);
  return MakeError(begun);
}

int32_t attendant_call_wait(attendant_call* call, int64_t timeout_ns) {
  CallState& state = *call->state;
  std::unique_lock lock(state.mutex);
  const auto ended = [&] { return state.ended; };
  // No call takes a day; the clock's time plus centuries would be past.
  if (timeout_ns < 0 || nanoseconds(timeout_ns) > std::chrono::hours(48)) {
    state.ended_changed.wait(lock, ended);
  } else {
    state.ended_changed.wait_for(lock, nanoseconds(timeout_ns), ended);
  }
  return state.ended ? 1 : 0;
}

attendant_error* attendant_call_take(attendant_call* call,
                                     attendant_result** result) {
  attendant_call_wait(call, -1);
  std::lock_guard lock(call->state->mutex);
  if (!call->state->outcome.has_value()) {
    if (result != nullptr) *result = nullptr;
    return MakeError(absl::FailedPreconditionError(
        "the call's outcome was taken before, or went to its callback"));
  }
  if (result == nullptr) return NullArgument("result");
  const Outcome outcome = *std::exchange(call->state->outcome, std::nullopt);
  *result = outcome.result;
  return outcome.error;
}

void attendant_call_cancel(attendant_call* call) {
  call->state->stop.request_stop();
}

void attendant_call_free(attendant_call* call) { delete call; }

attendant_error* attendant_get_server_info(attendant_client* client,
                                           int64_t timeout_ns,
                                           attendant_server_info** info) {
  if (client == nullptr) return NullArgument("client");
  if (info == nullptr) return NullArgument("info");
  *info = nullptr;
  auto answer = client->client.GetServerInfo(nanoseconds(timeout_ns));
  if (!answer.ok()) return MakeError(answer.status());
  *info = attendant::client::MakeServerInfo(*std::move(answer));
  return nullptr;
}

}  // extern "C"
