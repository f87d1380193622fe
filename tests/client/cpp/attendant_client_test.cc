#include "client/cpp/attendant_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>

#include "attendant/v1/error.pb.h"
#include "tests/client/cpp/fake_server.h"

namespace attendant::client {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatient = 30s;

struct Input {
  std::vector<float> values;
  AttendArgs args;

  explicit Input(size_t rows = 4) : values(rows * 2) {
    for (size_t e = 0; e < values.size(); ++e) values[e] = float(e) + 0.5f;
    args.q = {values.data(),
              DataType::kFloat32,
              {1, static_cast<int64_t>(rows), 1, 2},
              {}};
    args.k = args.v = args.q;
  }
};

Client Connect(const std::string& target, ClientOptions options = {}) {
  absl::StatusOr<Client> client = Client::Create(target, std::move(options));
  EXPECT_TRUE(client.ok()) << client.status();
  return *std::move(client);
}

// Fails the first `failures` calls with `status` and `pushback`.
FakeServer::Answer FailFirst(int failures, grpc::Status status,
                             std::string pushback = "") {
  auto left = std::make_shared<std::atomic<int>>(failures);
  return [=](grpc::ServerContext* context, const v1::AttendRequest& request,
             v1::AttendResponse* response) {
    if ((*left)-- <= 0) return EchoQ(context, request, response);
    if (!pushback.empty()) {
      context->AddTrailingMetadata("grpc-retry-pushback-ms", pushback);
    }
    return status;
  };
}

TEST(Client, GetsAnAnswer) {
  FakeServer server(EchoQ);
  Input input;
  input.args.request_id = "first";
  input.args.return_lse = true;
  const Client client = Connect(server.target());
  const auto result = client.Attend(input.args, kPatient);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->request_id, "first");
  EXPECT_EQ(result->out.shape, input.args.q.shape);
  EXPECT_EQ(result->out.dtype, DataType::kFloat32);
  EXPECT_EQ(std::memcmp(result->out.data, input.values.data(), 32), 0);
  EXPECT_EQ(result->lse.shape, std::vector<int64_t>({1, 1, 4}));
  EXPECT_EQ(result->lse.as<float>()[3], 4);
  EXPECT_EQ(result->served_by.kernel, "fake");
  EXPECT_EQ(result->served_by.backend, Backend::kCpu);
  EXPECT_EQ(result->exposed.kernel_ns, 7);
  EXPECT_EQ(result->attempts, 1);
  EXPECT_GT(result->client_ns, 0);
}

TEST(Client, CarriesTensorsOfManyMegabytes) {
  FakeServer server(EchoQ);
  const Input input(2 << 20);  // 16 MiB each
  const Client client = Connect(server.target());
  const auto result = client.Attend(input.args, kPatient);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(std::memcmp(result->out.data, input.values.data(), 16 << 20), 0);
}

TEST(Client, WritesIntoTheCallersMemory) {
  FakeServer server(EchoQ);
  Input input;
  std::vector<std::byte> out(32);
  input.args.out = out;
  const Client client = Connect(server.target());
  const auto result = client.Attend(input.args, kPatient);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->out.data, out.data());
  EXPECT_EQ(std::memcmp(out.data(), input.values.data(), 32), 0);

  out.resize(31);
  input.args.out = out;
  const auto refused = client.Attend(input.args, kPatient);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(GetErrorDetail(refused.status())->bound, "32 bytes");
}

TEST(Client, DecodesTheServersDetail) {
  FakeServer server(
      [](grpc::ServerContext*, const v1::AttendRequest&, v1::AttendResponse*) {
        v1::ErrorDetail detail;
        detail.set_field("q.shape[3]");
        detail.set_value("257");
        detail.set_bound("1..256");
        v1::RpcStatus status;
        status.add_details()->PackFrom(detail);
        return grpc::Status(grpc::INVALID_ARGUMENT, "too large",
                            status.SerializeAsString());
      });
  const Client client = Connect(server.target());
  const auto result = client.Attend(Input().args, kPatient);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(result.status().message(), "too large");
  const auto detail = GetErrorDetail(result.status());
  ASSERT_TRUE(detail.has_value());
  EXPECT_EQ(detail->field, "q.shape[3]");
  EXPECT_EQ(detail->value, "257");
  EXPECT_EQ(detail->bound, "1..256");
  EXPECT_EQ(server.calls(), 1);
}

TEST(Client, RepeatsAfterThePushback) {
  FakeServer server(FailFirst(2, {grpc::RESOURCE_EXHAUSTED, "full"}, "20"));
  const Client client = Connect(server.target());
  const auto begin = std::chrono::steady_clock::now();
  const auto result = client.Attend(Input().args, kPatient);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->attempts, 3);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 40ms);
}

TEST(Client, NeverRepeatsAgainstANegativePushback) {
  FakeServer server(FailFirst(1, {grpc::UNAVAILABLE, "draining"}, "-1"));
  const Client client = Connect(server.target());
  const auto result = client.Attend(Input().args, kPatient);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(server.calls(), 1);
}

TEST(Client, DoesNotWaitForAPushbackBeyondTheDeadline) {
  FakeServer server(FailFirst(9, {grpc::RESOURCE_EXHAUSTED, "full"}, "60000"));
  const Client client = Connect(server.target());
  const auto result = client.Attend(Input().args, kPatient);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(server.calls(), 1);
}

TEST(Client, RequiresADeadlineAndKeepsIt) {
  std::promise<void> release;
  std::shared_future<void> released(release.get_future());
  FakeServer server(
      [&](grpc::ServerContext*, const v1::AttendRequest&, v1::AttendResponse*) {
        released.wait();
        return grpc::Status::OK;
      });
  {
    const Client client = Connect(server.target());
    EXPECT_EQ(client.Attend(Input().args, 0ns).status().code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(client.Attend(Input().args, 50ms).status().code(),
              absl::StatusCode::kDeadlineExceeded);
  }
  release.set_value();
}

TEST(Client, StopsWhenAsked) {
  std::promise<void> arrived, release;
  std::shared_future<void> released(release.get_future());
  FakeServer server(
      [&](grpc::ServerContext*, const v1::AttendRequest&, v1::AttendResponse*) {
        arrived.set_value();
        released.wait();
        return grpc::Status::OK;
      });
  const Client client = Connect(server.target());
  std::stop_source stop;
  std::thread stopper([&] {
    arrived.get_future().wait();
    stop.request_stop();
  });
  const auto result = client.Attend(Input().args, kPatient, stop.get_token());
  EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled);
  stopper.join();
  release.set_value();
}

TEST(Client, ReconnectsToARestartedServer) {
  auto server = std::make_unique<FakeServer>(EchoQ);
  const int port = server->port();
  const Client client = Connect(server->target());
  ASSERT_TRUE(client.Attend(Input().args, kPatient).ok());
  server.reset();
  server = std::make_unique<FakeServer>(EchoQ, port);
  const auto result = client.Attend(Input().args, kPatient);
  EXPECT_TRUE(result.ok()) << result.status();
}

TEST(Client, GivesUpOnAServerThatIsNotThere) {
  int port;
  { port = FakeServer(EchoQ).port(); }
  const Client client =
      Connect("127.0.0.1:" + std::to_string(port),
              {.retry = {.max_attempts = 2, .initial_backoff = 1ms}});
  EXPECT_EQ(client.Attend(Input().args, kPatient).status().code(),
            absl::StatusCode::kUnavailable);
}

// Speaks HTTP/2 far enough to be sent to, and then never reads.
class DeafServer {
 public:
  DeafServer() : listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener_, any, length), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    EXPECT_EQ(getsockname(listener_, any, &length), 0);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~DeafServer() {
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    for (const int connection : connections_) close(connection);
    close(listener_);
  }
  std::string target() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  void Accept() {
    // SETTINGS with INITIAL_WINDOW_SIZE 2^31 - 1, then as much of the
    // connection's window: nothing but the socket holds the client back.
    static constexpr unsigned char kFrames[] = {
        0,    0, 6, 4, 0, 0, 0, 0, 0, 0, 4,    0x7f, 0xff, 0xff,
        0xff, 0, 0, 4, 8, 0, 0, 0, 0, 0, 0x7f, 0xff, 0,    0};
    for (int connection;
         (connection = accept(listener_, nullptr, nullptr)) >= 0;) {
      EXPECT_EQ(send(connection, kFrames, sizeof(kFrames), MSG_NOSIGNAL),
                static_cast<ssize_t>(sizeof(kFrames)));
      connections_.push_back(connection);
    }
  }

  const int listener_;
  int port_ = 0;
  std::thread acceptor_;
  std::vector<int> connections_;  // of acceptor_, until it is joined
};

// The request is stuck in a socket when the call ends: the caller's memory must
// not be read after Attend returns (a sanitizer build sees it if it is).
TEST(Client, GivesMemoryBackWhenTheServerDoesNotRead) {
  DeafServer server;
  const Client client = Connect(
      server.target(), {.stall_timeout = 500ms, .retry = {.max_attempts = 1}});
  for (int round = 0; round < 2; ++round) {
    const Input input(8 << 20);  // 64 MiB each, more than any socket takes
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_FALSE(client.Attend(input.args, 300ms).ok());
    const auto took = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(took, 20s);
    std::printf("ended after %d ms\n", static_cast<int>(took / 1ms));
  }
}

TEST(Client, GivesMemoryBackAfterAnEarlyError) {
  // 1 MB is accepted at most: gRPC refuses the rest of the upload early.
  v1::AttentionService::Service service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.SetMaxReceiveMessageSize(1 << 20);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const Client client = Connect("127.0.0.1:" + std::to_string(port));
  for (int round = 0; round < 5; ++round) {
    const Input input(2 << 20);
    EXPECT_EQ(client.Attend(input.args, kPatient).status().code(),
              absl::StatusCode::kResourceExhausted);
  }
  for (int round = 0; round < 5; ++round) {
    const Input input(2 << 20);
    EXPECT_FALSE(client.Attend(input.args, 1ms).ok());
  }
}

TEST(Client, ServesManyThreadsOverSeveralConnections) {
  FakeServer server(EchoQ);
  const Client client = Connect(server.target(), {.connections = 3});
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int c = 0; c < 10; ++c) {
        good += client.Attend(Input().args, kPatient).ok() ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 80);
}

TEST(Client, SendsItsToken) {
  std::string seen;
  FakeServer server([&](grpc::ServerContext* context,
                        const v1::AttendRequest& request,
                        v1::AttendResponse* response) {
    const auto found = context->client_metadata().find("authorization");
    if (found != context->client_metadata().end()) {
      seen.assign(found->second.data(), found->second.size());
    }
    return EchoQ(context, request, response);
  });
  EXPECT_EQ(
      Client::Create(server.target(), {.token = "secret"}).status().code(),
      absl::StatusCode::kInvalidArgument);
  const Client client = Connect(
      server.target(), {.token = "secret", .allow_token_without_tls = true});
  ASSERT_TRUE(client.Attend(Input().args, kPatient).ok());
  EXPECT_EQ(seen, "Bearer secret");
}

// A certificate for localhost that signs itself, and its key.
struct Certificate {
  std::string certificate, key;
};
std::optional<Certificate> MakeCertificate() {
  const std::filesystem::path directory =
      std::filesystem::path(testing::TempDir()) / "attendant_client_test";
  std::filesystem::create_directories(directory);
  const std::string key = directory / "key.pem";
  const std::string certificate = directory / "certificate.pem";
  const std::string command =
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 "
      "-nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost "
      "-keyout " +
      key + " -out " + certificate + " 2>/dev/null";
  if (std::system(command.c_str()) != 0) return std::nullopt;
  const auto read = [](const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  };
  return Certificate{read(certificate), read(key)};
}

TEST(Client, ProvesItselfAndTheServerByTls) {
  const std::optional<Certificate> pair = MakeCertificate();
  if (!pair.has_value()) GTEST_SKIP() << "no openssl command";
  grpc::SslServerCredentialsOptions ssl(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  ssl.pem_root_certs = pair->certificate;
  ssl.pem_key_cert_pairs.push_back({pair->key, pair->certificate});
  FakeServer server(EchoQ, 0, grpc::SslServerCredentials(ssl));
  const RetryOptions once{.max_attempts = 1};
  const auto code_with = [&](ClientOptions options) {
    const Client client = Connect(server.target(), std::move(options));
    return client.Attend(Input().args, kPatient).status().code();
  };
  ClientOptions good{.tls = true,
                     .root_certificates = pair->certificate,
                     .client_certificate = pair->certificate,
                     .client_key = pair->key,
                     .server_name = "localhost",
                     .token = "over TLS a token may travel",
                     .retry = once};
  EXPECT_EQ(code_with(good), absl::StatusCode::kOk);
  ClientOptions other_name = good;
  other_name.server_name = "elsewhere";
  EXPECT_EQ(code_with(other_name), absl::StatusCode::kUnavailable);
  ClientOptions unproven = good;
  unproven.client_certificate.clear();
  unproven.client_key.clear();
  EXPECT_EQ(code_with(unproven), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code_with({.retry = once}), absl::StatusCode::kUnavailable);
}

TEST(Client, RefusesOptionsThatContradictEachOther) {
  EXPECT_FALSE(Client::Create("").ok());
  EXPECT_FALSE(Client::Create("a:1", {.connections = 0}).ok());
  EXPECT_FALSE(Client::Create("a:1", {.root_certificates = "x"}).ok());
  EXPECT_FALSE(
      Client::Create("a:1", {.tls = true, .client_certificate = "x"}).ok());
  EXPECT_FALSE(Client::Create("a:1", {.retry = {.max_attempts = 0}}).ok());
}

TEST(Client, RefusesRepliesThatBreakTheContract) {
  const auto status_of = [](FakeServer::Answer answer, bool lse) {
    FakeServer server(std::move(answer));
    Input input;
    input.args.return_lse = lse;
    const Client client = Connect(server.target());
    return client.Attend(input.args, kPatient).status().code();
  };
  const auto short_bytes = [](grpc::ServerContext* context,
                              const v1::AttendRequest& request,
                              v1::AttendResponse* response) {
    EchoQ(context, request, response);
    response->mutable_output_data()->pop_back();
    return grpc::Status::OK;
  };
  const auto long_bytes = [](grpc::ServerContext* context,
                             const v1::AttendRequest& request,
                             v1::AttendResponse* response) {
    EchoQ(context, request, response);
    response->mutable_output_data()->append(1 << 20, 'x');
    return grpc::Status::OK;
  };
  const auto negative = [](grpc::ServerContext* context,
                           const v1::AttendRequest& request,
                           v1::AttendResponse* response) {
    EchoQ(context, request, response);
    response->mutable_output()->set_shape(0, -1);
    return grpc::Status::OK;
  };
  // 2^62 elements of 4 bytes are 0 bytes, modulo 2^64.
  const auto wrapped = [](grpc::ServerContext* context,
                          const v1::AttendRequest& request,
                          v1::AttendResponse* response) {
    EchoQ(context, request, response);
    response->mutable_output()->set_shape(0, int64_t{1} << 59);
    response->clear_output_data();
    return grpc::Status::OK;
  };
  const auto no_lse = [](grpc::ServerContext* context,
                         const v1::AttendRequest& request,
                         v1::AttendResponse* response) {
    EchoQ(context, request, response);
    response->clear_lse();
    return grpc::Status::OK;
  };
  EXPECT_EQ(status_of(short_bytes, false), absl::StatusCode::kInternal);
  EXPECT_EQ(status_of(long_bytes, false), absl::StatusCode::kInternal);
  EXPECT_EQ(status_of(negative, false), absl::StatusCode::kInternal);
  EXPECT_EQ(status_of(wrapped, false), absl::StatusCode::kInternal);
  EXPECT_EQ(status_of(no_lse, true), absl::StatusCode::kInternal);
}

TEST(Client, GetsServerInfo) {
  FakeServer server(EchoQ);
  const Client client = Connect(server.target());
  const auto info = client.GetServerInfo(kPatient);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->version, "1.2.3");
  EXPECT_EQ(info->bounds.max_head_dim, 256);
  ASSERT_EQ(info->devices.size(), 1);
  EXPECT_EQ(info->devices[0].name, "fake");
  ASSERT_EQ(info->capabilities.size(), 1);
  EXPECT_EQ(info->capabilities[0].input_dtypes[0], DataType::kBFloat16);
  EXPECT_TRUE(info->capabilities[0].softcap);
}

}  // namespace
}  // namespace attendant::client
