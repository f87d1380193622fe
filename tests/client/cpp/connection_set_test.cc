// Connections as callers of Client see them: lost, stuck, many, proven.
#include "client/cpp/connection_set.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/client/cpp/deaf_server.h"
#include "tests/client/cpp/echo_input.h"
#include "tests/client/cpp/fake_server.h"

namespace attendant::client {
namespace {

using namespace std::chrono_literals;

TEST(UsualTime, LooksTwiceAsLongAsUsualWithinTheBound) {
  UsualTime usual;
  EXPECT_EQ(usual.TimeToLook(2000us), 0us);  // nothing is known yet
  usual.Note(400us);
  EXPECT_EQ(usual.TimeToLook(2000us), 800us);
  EXPECT_EQ(usual.TimeToLook(500us), 500us);
  EXPECT_EQ(usual.TimeToLook(399us), 0us);
  EXPECT_EQ(usual.TimeToLook(0us), 0us);
}

// A call of 1.1 ms without a look, 0.9 with one, must not stay without.
TEST(UsualTime, LooksForWhatTakesMoreThanHalfOfTheBound) {
  UsualTime usual;
  for (int call = 0; call < 100; ++call) usual.Note(1100us);
  EXPECT_EQ(usual.TimeToLook(2000us), 2000us);
}

TEST(UsualTime, ForgetsWhatWasSlowOnceInAFewCalls) {
  UsualTime usual;
  usual.Note(20ms);
  for (int call = 0; call < 5; ++call) usual.Note(1ms);
  EXPECT_GT(usual.TimeToLook(2000us), 0us);
  for (int call = 0; call < 50; ++call) usual.Note(1ms);
  usual.Note(20ms);
  EXPECT_EQ(usual.TimeToLook(2000us), 0us);
}

TEST(ConnectionSet, ReconnectsToARestartedServer) {
  auto server = std::make_unique<FakeServer>(EchoQ);
  const int port = server->port();
  const Client client = Connect(server->target());
  ASSERT_TRUE(client.Attend(Input().args, kPatient).ok());
  server.reset();
  server = std::make_unique<FakeServer>(EchoQ, port);
  const auto result = client.Attend(Input().args, kPatient);
  EXPECT_TRUE(result.ok()) << result.status();
}

TEST(ConnectionSet, GivesUpOnAServerThatIsNotThere) {
  int port;
  { port = FakeServer(EchoQ).port(); }
  const Client client =
      Connect("127.0.0.1:" + std::to_string(port),
              {.retry = {.max_attempts = 2, .initial_backoff = 1ms}});
  EXPECT_EQ(client.Attend(Input().args, kPatient).status().code(),
            absl::StatusCode::kUnavailable);
}

// The request is stuck in a socket when the call ends: the caller's memory must
// not be read after Attend returns (a sanitizer build sees it if it is).
TEST(ConnectionSet, GivesMemoryBackWhenTheServerDoesNotRead) {
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

TEST(ConnectionSet, GivesMemoryBackAfterAnEarlyError) {
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

TEST(ConnectionSet, ServesManyThreadsOverSeveralConnections) {
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

TEST(ConnectionSet, SendsItsToken) {
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

TEST(ConnectionSet, ProvesItselfAndTheServerByTls) {
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

}  // namespace
}  // namespace attendant::client
