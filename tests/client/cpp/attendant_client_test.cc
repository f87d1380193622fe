#include "client/cpp/attendant_client.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <future>
#include <mutex>
#include <optional>
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

// A server that answers before it has read the body leaves bytes in the
// connection: the caller's memory must not be read after Attend returns (a
// sanitizer build sees it if it is).
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
  const auto negative = [](grpc::ServerContext* context,
                           const v1::AttendRequest& request,
                           v1::AttendResponse* response) {
    EchoQ(context, request, response);
    response->mutable_output()->set_shape(0, -1);
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
  EXPECT_EQ(status_of(negative, false), absl::StatusCode::kInternal);
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
