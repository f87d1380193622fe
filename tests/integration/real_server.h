// A server on loopback over the real engine, in this process.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "attendant/v1/attention.grpc.pb.h"
#include "server/attention_server.h"
#include "tests/integration/test_backend.h"
#include "tests/testing/stream_call.h"

namespace attendant::testing {

inline constexpr int64_t kTestPoolBytes = int64_t{256} << 20;

inline server::ServerOptions SmallServerOptions() {
  server::ServerOptions options;
  options.listen = "127.0.0.1:0";
  options.http = "127.0.0.1:0";
  options.engine.backend = TestsOnCuda() ? server::EngineOptions::Backend::kCuda
                                         : server::EngineOptions::Backend::kCpu;
  options.engine.cpu_threads = 2;
  options.engine.host_pool_bytes = kTestPoolBytes;
  options.engine.max_queued_bytes = kTestPoolBytes;
  options.bounds.max_queued_bytes = kTestPoolBytes;
  return options;
}

// With a connection of its own, which is there. (gRPC 1.51 may give a first
// attempt up for no reason and tries again by itself; calls that do not wait
// would fail.)
inline std::shared_ptr<grpc::Channel> ConnectedChannel(
    const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto channel = grpc::CreateCustomChannel(
      address, grpc::InsecureChannelCredentials(), arguments);
  EXPECT_TRUE(channel->WaitForConnected(std::chrono::system_clock::now() +
                                        std::chrono::seconds(60)))
      << address;
  return channel;
}

inline std::unique_ptr<v1::AttentionService::Stub> ConnectTo(
    const std::string& address) {
  return v1::AttentionService::NewStub(ConnectedChannel(address));
}

// An answer that never comes is a failure, not a test that hangs; and a
// connection that is lost may come again.
inline void SetPatience(grpc::ClientContext* context) {
  context->set_wait_for_ready(true);
  context->set_deadline(std::chrono::system_clock::now() +
                        std::chrono::seconds(120));
}

// False where tests are told to serve on a GPU and there is none to be used.
inline bool BackendIsThere() {
  return !TestsOnCuda() ||
         !absl::IsFailedPrecondition(
             server::CreateEngine(SmallServerOptions().engine).status());
}

class RealServer {
 public:
  explicit RealServer(server::ServerOptions options = SmallServerOptions()) {
    auto engine = server::CreateEngine(options.engine);
    EXPECT_TRUE(engine.ok()) << engine.status();
    auto started =
        server::AttentionServer::Start(options, std::move(engine).value());
    EXPECT_TRUE(started.ok()) << started.status();
    server_ = std::move(started).value();
    stub_ = ConnectTo(server_->grpc_addresses()[0]);
  }

  server::AttentionServer& server() { return *server_; }
  v1::AttentionService::Stub& stub() { return *stub_; }
  std::string address() const { return server_->grpc_addresses()[0]; }

  grpc::Status Attend(const v1::AttendRequest& request,
                      v1::AttendResponse* reply) {
    grpc::ClientContext context;
    SetPatience(&context);
    return stub_->Attend(&context, request, reply);
  }
  // The same by the stream door, over `streams` connections.
  grpc::Status AttendByStreams(const v1::AttendRequest& request, int streams,
                               const StreamOptions& options,
                               v1::AttendResponse* reply) {
    while (static_cast<int>(more_stubs_.size()) + 1 < streams) {
      more_stubs_.push_back(ConnectTo(address()));
    }
    std::vector<v1::AttentionService::StubInterface*> stubs = {stub_.get()};
    for (int s = 1; s < streams; ++s) stubs.push_back(more_stubs_[s - 1].get());
    return testing::AttendByStreams(stubs, request, options, reply);
  }

 private:
  std::unique_ptr<server::AttentionServer> server_;
  std::unique_ptr<v1::AttentionService::Stub> stub_;
  std::vector<std::unique_ptr<v1::AttentionService::Stub>> more_stubs_;
};

}  // namespace attendant::testing
