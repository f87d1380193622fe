#include "client/cpp/attendant_client.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <thread>

#include "attendant/v1/error.pb.h"
#include "tests/client/cpp/echo_input.h"
#include "tests/client/cpp/fake_server.h"

namespace attendant::client {
namespace {

using namespace std::chrono_literals;

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

TEST(Client, RefusesOptionsThatContradictEachOther) {
  EXPECT_FALSE(Client::Create("").ok());
  EXPECT_FALSE(Client::Create("a:1", {.connections = 0}).ok());
  EXPECT_FALSE(Client::Create("a:1", {.root_certificates = "x"}).ok());
  EXPECT_FALSE(
      Client::Create("a:1", {.tls = true, .client_certificate = "x"}).ok());
  EXPECT_FALSE(Client::Create("a:1", {.retry = {.max_attempts = 0}}).ok());
  EXPECT_FALSE(
      Client::Create("a:1", {.balance = true, .road = Road::kStriped}).ok());
}

TEST(Client, BalancesOverAllAddressesAndDoesWithoutOneThatIsGone) {
  FakeServer first(EchoQ);
  auto second = std::make_unique<FakeServer>(EchoQ);
  const std::string target = "ipv4:127.0.0.1:" + std::to_string(first.port()) +
                             ",127.0.0.1:" + std::to_string(second->port());
  const auto client = Client::Create(target, {.balance = true});
  ASSERT_TRUE(client.ok()) << client.status();
  const Input input;
  while (first.calls() == 0 || second->calls() == 0) {
    ASSERT_TRUE(client->Attend(input.args, kPatient).ok());
  }
  second.reset();
  for (int i = 0; i < 10; ++i) {
    const auto result = client->Attend(input.args, kPatient);
    ASSERT_TRUE(result.ok()) << result.status();
  }
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
