#include "client/cpp/connection_set.h"

#include <grpc/support/time.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "client/cpp/kept_heap.h"
#include "client/cpp/status_decoder.h"

namespace attendant::client {
namespace {

std::shared_ptr<grpc::ChannelCredentials> Credentials(
    const ClientOptions& options) {
  if (!options.tls) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions ssl;
  ssl.pem_root_certs = options.root_certificates;
  ssl.pem_cert_chain = options.client_certificate;
  ssl.pem_private_key = options.client_key;
  return grpc::SslCredentials(ssl);
}

gpr_timespec ToGprDeadline(SteadyTime deadline) {
  const auto remaining = std::max(
      std::chrono::nanoseconds(0),
      std::chrono::nanoseconds(deadline - std::chrono::steady_clock::now()));
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(remaining.count(), GPR_TIMESPAN));
}

// Counts who looks at the same time; false if there are too many.
class Lookers {
 public:
  Lookers() : may_look_(++count_ <= most_) {}
  ~Lookers() { --count_; }
  bool may_look() const { return may_look_; }

 private:
  static inline std::atomic<int> count_{0};
  static inline const int most_ =
      std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / 4);
  const bool may_look_;
};

// The next event of the queue: looked for, then waited for.
void WaitForEvent(grpc::CompletionQueue* queue,
                  std::chrono::microseconds busy_poll) {
  void* tag;
  bool ok;
  if (busy_poll.count() > 0) {
    const Lookers lookers;
    const auto until = std::chrono::steady_clock::now() + busy_poll;
    const gpr_timespec now = gpr_time_0(GPR_CLOCK_MONOTONIC);
    while (lookers.may_look() && std::chrono::steady_clock::now() < until) {
      if (queue->AsyncNext(&tag, &ok, now) != grpc::CompletionQueue::TIMEOUT) {
        return;
      }
      std::this_thread::yield();
    }
  }
  queue->Next(&tag, &ok);
}

// A unary call on a completion queue of its own: no thread but the caller's.
grpc::Status BlockingCall(std::shared_ptr<grpc::Channel> channel,
                          grpc::ClientContext* context,
                          const std::string& method,
                          const grpc::ByteBuffer& request,
                          std::chrono::microseconds busy_poll,
                          grpc::ByteBuffer* reply) {
  grpc::GenericStub stub(std::move(channel));
  grpc::CompletionQueue queue;
  grpc::Status status;
  {
    const std::unique_ptr<grpc::GenericClientAsyncResponseReader> call =
        stub.PrepareUnaryCall(context, method, request, &queue);
    call->StartCall();
    call->Finish(reply, &status, nullptr);
    WaitForEvent(&queue, busy_poll);
  }
  queue.Shutdown();
  return status;
}

}  // namespace

void UsualTime::Note(std::chrono::nanoseconds time) {
  // Two at once: one of them is forgotten.
  const int64_t before = ns_.load(std::memory_order_relaxed);
  const int64_t now = time.count();
  const int64_t share = now < before ? 2 : 8;
  ns_.store(before == 0 ? now : before + (now - before) / share,
            std::memory_order_relaxed);
}

std::chrono::microseconds UsualTime::TimeToLook(
    std::chrono::microseconds most) const {
  const auto usual =
      std::chrono::duration_cast<std::chrono::microseconds>(get());
  if (usual > most) return std::chrono::microseconds(0);
  return std::min(2 * usual, most);
}

ConnectionSet::ConnectionSet(std::string target, const ClientOptions& options)
    : target_(std::move(target)), options_(options) {
  KeepFreedMemory();
  for (int c = 0; c < options_.connections; ++c) {
    channels_.push_back(MakeChannel());
  }
}

std::shared_ptr<grpc::Channel> ConnectionSet::MakeChannel() const {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  // Channels with equal arguments would otherwise share one connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // gRPC's own retries would keep a copy of the request in a small buffer.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // Its name misleads: this is how long one attempt to connect may take.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 10'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  // With any keepalive, gRPC sets TCP_USER_TIMEOUT to its time-out; pings this
  // rare are within what every server tolerates.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 3'600'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                   static_cast<int>(options_.stall_timeout.count()));
  // Large replies: fewer, larger frames.
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 8 << 20);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 4 << 20);
  if (options_.balance) {
    // Servers that say they are not ready are passed over: one that drains
    // refuses quickly, and would draw the retries of what it refused.
    arguments.SetServiceConfigJSON(
        R"({"loadBalancingConfig": [{"round_robin": {}}],)"
        R"( "healthCheckConfig": {"serviceName": ""}})");
  }
  if (!options_.server_name.empty()) {
    arguments.SetSslTargetNameOverride(options_.server_name);
  }
  return grpc::CreateCustomChannel(target_, Credentials(options_), arguments);
}

CallOutcome ConnectionSet::Call(const std::string& method,
                                const grpc::ByteBuffer& request,
                                SteadyTime deadline,
                                const std::stop_token& stop) {
  CallOutcome outcome;
  grpc::ClientContext context;
  Prepare(&context, deadline);
  const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
  const SteadyTime begin = std::chrono::steady_clock::now();
  const auto look = usual_.TimeToLook(options_.busy_poll);
  const grpc::Status status =
      BlockingCall(Take(1)[0], &context, method, request, look, &outcome.reply);
  if (status.ok()) usual_.Note(std::chrono::steady_clock::now() - begin);
  outcome.status = DecodeStatus(status);
  outcome.pushback = PushbackOf(context);
  return outcome;
}

std::vector<std::shared_ptr<grpc::Channel>> ConnectionSet::Take(int count) {
  std::lock_guard lock(mutex_);
  if (count == 1) {
    return {channels_[next_++ % static_cast<size_t>(options_.connections)]};
  }
  while (channels_.size() < static_cast<size_t>(count)) {
    channels_.push_back(MakeChannel());
  }
  return {channels_.begin(), channels_.begin() + count};
}

void ConnectionSet::Prepare(grpc::ClientContext* context,
                            SteadyTime deadline) const {
  context->set_deadline(ToGprDeadline(deadline));
  if (!options_.token.empty()) {
    context->AddMetadata("authorization", "Bearer " + options_.token);
  }
  if (!options_.region_owner.empty()) {
    context->AddMetadata("attendant-owner", options_.region_owner);
  }
}

std::optional<std::string> PushbackOf(const grpc::ClientContext& context) {
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto pushback = trailers.find("grpc-retry-pushback-ms");
  if (pushback == trailers.end()) return std::nullopt;
  return std::string(pushback->second.data(), pushback->second.size());
}

}  // namespace attendant::client
