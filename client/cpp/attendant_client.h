// The C++ client of Attendant: exact attention by one call.
//
//   Client client = *Client::Create("localhost:50051");
//   AttendArgs args;
//   args.q = {q.data(), DataType::kFloat32, {1, 128, 8, 64}, {}};  // k, v too
//   args.causal = true;
//   absl::StatusOr<AttendResult> result = client.Attend(args, 10s);
//
// Errors carry the server's code, its text and, where a field is at fault, an
// ErrorDetail (client_error.h).
#pragma once

#include <chrono>
#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/attend_args.h"
#include "client/cpp/client_error.h"
#include "client/cpp/server_info.h"
#include "client/cpp/tensor.h"

namespace attendant::client {

// When a failed call is sent again. Attend is pure, so repeating is safe.
// UNAVAILABLE and RESOURCE_EXHAUSTED are repeated: after the server's
// grpc-retry-pushback-ms if it gave one (a negative one means never), else
// after a random wait below initial_backoff, doubled each time up to
// max_backoff. Never beyond the call's deadline.
struct RetryOptions {
  int max_attempts = 5;  // 1 = never repeat
  std::chrono::milliseconds initial_backoff{100};
  std::chrono::milliseconds max_backoff{5000};
};

// How the tensors of an Attend travel. The answer is the same, bit for bit.
enum class Road : int {
  kAuto,     // by size: small ones kUnary, then kStream, large ones kStriped
  kUnary,    // one message each way (below 2 GiB)
  kStream,   // chunks over one connection
  kStriped,  // chunks over several connections at once
};

// Members have initialisers so that designated ones may leave some out.
struct ClientOptions {
  // TLS: certificates and keys are PEM text, not file names.
  bool tls = false;
  std::string root_certificates = {};   // empty = the system's
  std::string client_certificate = {};  // mTLS: both, or neither
  std::string client_key = {};
  std::string server_name =
      {};  // expected in the certificate; empty = the target's

  // Sent as "authorization: Bearer <token>". Refused without TLS unless the
  // target is a unix socket or allow_token_without_tls is set.
  std::string token = {};
  bool allow_token_without_tls = false;

  // Sent as "attendant-owner": whose regions the calls may use. 32 to 128
  // printable ASCII characters that nobody can guess; empty = no regions.
  std::string region_owner = {};

  // TCP connections that calls are spread over: one is read by one thread at a
  // time, at both ends (rates: deploy/guides/measured.md).
  int connections = 1;
  // Calls go in turn to all servers that the target's name stands for
  // ("dns:///name:port") and that say they are ready (grpc.health.v1); with
  // retries, restarts of one after the other lose no call. A target that is a
  // list ("10.0.0.1:50051,10.0.0.2:50051") means this. A call then goes to one
  // server by one stream at most: kStriped is refused.
  bool balance = false;
  Road road = Road::kAuto;
  // Connections that one kStriped call uses, opened by the first: 2 to 64.
  int stripes = 8;
  // A connection whose peer takes no bytes for this long is cut off. gRPC ends
  // no call whose bytes are stuck in a socket, so a deadline can be missed by
  // as much. Not on unix sockets.
  std::chrono::milliseconds stall_timeout{20'000};
  // A call by one message looks for its answer before its thread sleeps (waking
  // up takes some 50 us) twice as long as such calls took lately, but no longer
  // than this, and not at all where more than this is usual: nobody looks for
  // what comes from afar. One core is busy for as long, and nobody looks while
  // more than a quarter of the cores do. 0 = never.
  std::chrono::microseconds busy_poll{2000};
  RetryOptions retry = {};
};

// Thread-safe: any number of threads may call at once. Move-only. Connects at
// the first call and reconnects by itself.
class Client {
 public:
  // target: "host:port", "dns:///name:port", "unix:/path", gRPC's other forms,
  // or addresses by commas. INVALID_ARGUMENT for options that contradict each
  // other.
  static absl::StatusOr<Client> Create(const std::string& target,
                                       ClientOptions options = {});
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;
  ~Client();

  // Blocks for the answer, `timeout` (> 0) at most, retries included (but see
  // stall_timeout); `stop` ends it with CANCELLED. Dense tensors (and dense
  // permutations of one) are sent from the caller's memory without a copy; of
  // views with gaps only the named elements travel. Nobody reads the caller's
  // memory afterwards. Errors: the server's; DEADLINE_EXCEEDED; UNAVAILABLE;
  // INVALID_ARGUMENT for views that name no memory; INTERNAL for a reply that
  // breaks the contract.
  absl::StatusOr<AttendResult> Attend(const AttendArgs& args,
                                      std::chrono::nanoseconds timeout,
                                      std::stop_token stop = {}) const;

  absl::StatusOr<ServerInfo> GetServerInfo(
      std::chrono::nanoseconds timeout) const;

  // One call of another method of the server's, "/package.Service/Method": the
  // bytes of its request, and of its reply. Not repeated.
  absl::StatusOr<std::string> CallMethod(
      const std::string& method, const std::string& request,
      std::chrono::nanoseconds timeout) const;

 private:
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace attendant::client
