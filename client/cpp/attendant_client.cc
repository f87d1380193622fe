#include "client/cpp/attendant_client.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <random>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/attend_stream.h"
#include "client/cpp/borrowed_memory.h"
#include "client/cpp/connection_set.h"
#include "client/cpp/reply_decoder.h"
#include "client/cpp/request_encoder.h"
#include "client/cpp/retry_policy.h"
#include "client/cpp/server_list.h"

namespace attendant::client {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

constexpr char kAttend[] = "/attendant.v1.AttentionService/Attend";
constexpr char kGetServerInfo[] =
    "/attendant.v1.AttentionService/GetServerInfo";

// Tensor bytes from which a road is worth it: a stream costs one round trip
// more than a message, several connections also a thread and a join each.
constexpr int64_t kStreamBytes = int64_t{4} << 20;
constexpr int64_t kStripeBytes = int64_t{16} << 20;

// The streams of one striped call must meet at one server.
Road RoadFor(Road asked, int64_t bytes, bool balance) {
  if (asked != Road::kAuto) return asked;
  if (bytes < kStreamBytes) return Road::kUnary;
  return bytes < kStripeBytes || balance ? Road::kStream : Road::kStriped;
}

double Chance() {
  thread_local std::mt19937_64 engine{std::random_device{}()};
  return std::uniform_real_distribution<double>(0, 1)(engine);
}

// False if `stop` was requested meanwhile.
bool Wait(nanoseconds delay, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, stop, delay, [] { return false; });
  return !stop.stop_requested();
}

absl::Status CheckOptions(const std::string& target,
                          const ClientOptions& options) {
  if (target.empty()) return InvalidField("target", "empty", "host:port");
  if (options.connections < 1) {
    return InvalidField("connections", absl::StrCat(options.connections),
                        ">= 1");
  }
  if (IsBalanced(target, options) && options.road == Road::kStriped) {
    return InvalidField("road", "kStriped", "another one, with balance");
  }
  if (options.stripes < 2 || options.stripes > 64) {
    return InvalidField("stripes", absl::StrCat(options.stripes), "2..64");
  }
  if (options.stall_timeout < std::chrono::milliseconds(1) ||
      options.stall_timeout > std::chrono::hours(24)) {
    return InvalidField("stall_timeout",
                        absl::StrCat(options.stall_timeout.count(), " ms"),
                        "1 ms to 24 h");
  }
  if (options.retry.max_attempts < 1) {
    return InvalidField("retry.max_attempts",
                        absl::StrCat(options.retry.max_attempts), ">= 1");
  }
  if (options.client_certificate.empty() != options.client_key.empty()) {
    return InvalidField("client_certificate", "given without its other half",
                        "given together with client_key");
  }
  const bool needs_tls = !options.root_certificates.empty() ||
                         !options.client_key.empty() ||
                         !options.server_name.empty();
  if (needs_tls && !options.tls) {
    return InvalidField("tls", "false", "true to use certificates");
  }
  if (!options.token.empty() && !options.tls &&
      !options.allow_token_without_tls && !absl::StartsWith(target, "unix:")) {
    return InvalidField("token", "given without TLS",
                        "sent over TLS or a unix socket");
  }
  return absl::OkStatus();
}

absl::StatusOr<SteadyTime> DeadlineAfter(nanoseconds timeout) {
  if (timeout <= nanoseconds(0)) {
    return InvalidField("timeout", absl::StrCat(timeout.count(), " ns"),
                        "> 0 ns");
  }
  return steady_clock::now() +
         std::min<nanoseconds>(timeout, std::chrono::hours(24));
}

}  // namespace

class Client::Impl {
 public:
  Impl(const std::string& target, const ClientOptions& options)
      : connections_(target, options),
        retry_(options.retry),
        road_(options.road),
        balance_(options.balance),
        stripes_(options.stripes) {}

  // Repeats as RetryOptions say what `attempt()` does once: it returns an
  // outcome with status and pushback. `attempts` counts.
  template <typename Attempt>
  auto Repeat(SteadyTime deadline, const std::stop_token& stop, int* attempts,
              const Attempt& attempt) {
    for (*attempts = 0;;) {
      auto outcome = attempt();
      ++*attempts;
      if (outcome.status.ok()) return outcome;
      const std::optional<nanoseconds> delay =
          RetryDelay(retry_, {outcome.status, outcome.pushback}, *attempts,
                     Chance(), deadline - steady_clock::now());
      if (!delay.has_value() || !Wait(*delay, stop)) return outcome;
    }
  }

  CallOutcome Call(const std::string& method, const grpc::ByteBuffer& request,
                   SteadyTime deadline, const std::stop_token& stop,
                   int* attempts) {
    return Repeat(deadline, stop, attempts, [&] {
      return connections_.Call(method, request, deadline, stop);
    });
  }

  CallOutcome CallOnce(const std::string& method,
                       const grpc::ByteBuffer& request, SteadyTime deadline) {
    return connections_.Call(method, request, deadline, {});
  }

  absl::StatusOr<AttendResult> Attend(const AttendArgs& args,
                                      SteadyTime deadline,
                                      const std::stop_token& stop) {
    absl::StatusOr<EncodedHeader> header = EncodeHeader(args);
    if (!header.ok()) return header.status();
    // What lies in shared memory is named in one message.
    Road road = args.shared.empty()
                    ? RoadFor(road_, header->tensor_bytes, balance_)
                    : Road::kUnary;
    if (road_ == Road::kAuto && no_stream_door_) road = Road::kUnary;
    if (road != Road::kUnary) {
      absl::StatusOr<AttendResult> result =
          AttendByStream(road, args, *header, deadline, stop);
      // A server from before there were streams says so without a detail.
      const bool no_door = absl::IsUnimplemented(result.status()) &&
                           !GetErrorDetail(result.status()).has_value();
      if (road_ != Road::kAuto || !no_door) return result;
      no_stream_door_ = true;
    }
    return AttendByMessage(args, *std::move(header), deadline, stop);
  }

 private:
  absl::StatusOr<AttendResult> AttendByStream(Road road, const AttendArgs& args,
                                              const EncodedHeader& header,
                                              SteadyTime deadline,
                                              const std::stop_token& stop) {
    const int streams = road == Road::kStriped ? stripes_ : 1;
    int attempts = 0;
    StreamOutcome outcome = Repeat(deadline, stop, &attempts, [&] {
      return AttendOverStreams(connections_, streams, args, header, deadline,
                               stop);
    });
    if (!outcome.status.ok()) return outcome.status;
    outcome.result.attempts = attempts;
    outcome.result.door = road == Road::kStriped ? "striped" : "stream";
    return std::move(outcome.result);
  }

  absl::StatusOr<AttendResult> AttendByMessage(const AttendArgs& args,
                                               EncodedHeader header,
                                               SteadyTime deadline,
                                               const std::stop_token& stop) {
    BorrowedMemory borrowed;
    absl::StatusOr<EncodedRequest> request =
        EncodeAttendRequest(std::move(header), borrowed);
    if (!request.ok()) return request.status();
    int attempts = 0;
    CallOutcome outcome =
        Call(kAttend, request->message, deadline, stop, &attempts);
    request->message.Clear();
    borrowed.WaitUntilReturned();
    if (!outcome.status.ok()) return outcome.status;
    absl::StatusOr<AttendResult> result =
        DecodeAttendResponse(args, outcome.reply);
    if (!result.ok()) return result;
    result->attempts = attempts;
    result->door = "unary";
    return result;
  }

  ConnectionSet connections_;
  const RetryOptions retry_;
  const Road road_;
  const bool balance_;
  const int stripes_;
  std::atomic<bool> no_stream_door_{false};  // the server has none
};

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;
Client::~Client() = default;

absl::StatusOr<Client> Client::Create(const std::string& target,
                                      ClientOptions options) {
  absl::Status status = CheckOptions(target, options);
  if (!status.ok()) return status;
  const absl::StatusOr<std::string> grpc_target = GrpcTarget(target);
  if (!grpc_target.ok()) return grpc_target.status();
  options.balance = IsBalanced(target, options);
  return Client(std::make_unique<Impl>(*grpc_target, options));
}

absl::StatusOr<AttendResult> Client::Attend(const AttendArgs& args,
                                            nanoseconds timeout,
                                            std::stop_token stop) const {
  const SteadyTime begin = steady_clock::now();
  const absl::StatusOr<SteadyTime> deadline = DeadlineAfter(timeout);
  if (!deadline.ok()) return deadline.status();
  absl::StatusOr<AttendResult> result = impl_->Attend(args, *deadline, stop);
  if (!result.ok()) return result;
  result->client_ns = nanoseconds(steady_clock::now() - begin).count();
  return result;
}

absl::StatusOr<std::string> Client::CallMethod(const std::string& method,
                                               const std::string& request,
                                               nanoseconds timeout) const {
  const absl::StatusOr<SteadyTime> deadline = DeadlineAfter(timeout);
  if (!deadline.ok()) return deadline.status();
  grpc::Slice slice(request);
  const CallOutcome outcome =
      impl_->CallOnce(method, grpc::ByteBuffer(&slice, 1), *deadline);
  if (!outcome.status.ok()) return outcome.status;
  grpc::Slice reply;
  if (!outcome.reply.DumpToSingleSlice(&reply).ok()) {
    return absl::InternalError("the reply cannot be read");
  }
  return std::string(reinterpret_cast<const char*>(reply.begin()),
                     reply.size());
}

absl::StatusOr<ServerInfo> Client::GetServerInfo(nanoseconds timeout) const {
  const absl::StatusOr<SteadyTime> deadline = DeadlineAfter(timeout);
  if (!deadline.ok()) return deadline.status();
  grpc::Slice empty(std::string{});
  int attempts = 0;
  const CallOutcome outcome = impl_->Call(
      kGetServerInfo, grpc::ByteBuffer(&empty, 1), *deadline, {}, &attempts);
  if (!outcome.status.ok()) return outcome.status;
  return DecodeServerInfo(outcome.reply);
}

}  // namespace attendant::client
