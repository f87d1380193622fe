// A server on loopback over a FakeAttentionEngine, with a channel to it.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "attendant/v1/attention.grpc.pb.h"
#include "attendant/v1/error.pb.h"
#include "server/attention_server.h"
#include "tests/server/fake_attention_engine.h"

namespace attendant::testing {

inline server::ServerOptions LoopbackOptions() {
  server::ServerOptions options;
  options.listen = "127.0.0.1:0";
  options.http = "127.0.0.1:0";
  return options;
}

// With a connection of its own, to be made by the first call.
inline std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   arguments);
}

// The same once it is connected. (gRPC 1.51 may give a first attempt up for no
// reason and tries again by itself; calls that do not wait would fail.)
inline std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
  auto channel = MakeChannel(address);
  EXPECT_TRUE(channel->WaitForConnected(std::chrono::system_clock::now() +
                                        std::chrono::seconds(60)));
  return channel;
}

class ServedEngine {
 public:
  explicit ServedEngine(server::ServerOptions options = LoopbackOptions()) {
    auto engine = std::make_unique<FakeAttentionEngine>();
    engine_ = engine.get();
    auto started = server::AttentionServer::Start(options, std::move(engine));
    EXPECT_TRUE(started.ok()) << started.status();
    server_ = std::move(started).value();
    channel_ = Connect(server_->grpc_addresses()[0]);
    stub_ = v1::AttentionService::NewStub(channel_);
  }

  FakeAttentionEngine& engine() { return *engine_; }
  server::AttentionServer& server() { return *server_; }
  const std::shared_ptr<grpc::Channel>& channel() { return channel_; }
  v1::AttentionService::Stub& stub() { return *stub_; }

  // The sample's value on /metrics; -1 if there is none.
  double Metric(const std::string& sample) const {
    const std::string text = "\n" + server_->MetricsText();
    const size_t at = text.find("\n" + sample + " ");
    if (at == std::string::npos) return -1;
    return std::atof(text.c_str() + at + sample.size() + 2);
  }

  // What must hold at every moment.
  void ExpectConservation(const std::string& method) const {
    const std::string text = server_->MetricsText();
    double finished = 0;
    double started = -1;
    double in_flight = -1;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = text.find('\n', begin);
      const std::string line = text.substr(begin, end - begin);
      begin = end + 1;
      if (line.find("method=\"" + method + "\"") == std::string::npos) continue;
      const double value = std::atof(line.c_str() + line.rfind(' '));
      if (line.rfind("attendant_requests_started", 0) == 0) started = value;
      if (line.rfind("attendant_requests_in_fl", 0) == 0) in_flight = value;
      if (line.rfind("attendant_requests_finished", 0) == 0) finished += value;
    }
    EXPECT_EQ(started, finished + in_flight);
  }

 private:
  FakeAttentionEngine* engine_ = nullptr;
  std::unique_ptr<server::AttentionServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::AttentionService::Stub> stub_;
};

// q = 0, so that every row of O is the mean of V: here (seqlen - 1) / 2.
inline v1::AttendRequest MeanRequest(int64_t seqlen, int64_t head_dim) {
  v1::AttendRequest request;
  std::vector<float> zeros(seqlen * head_dim);
  std::vector<float> rows(seqlen * head_dim);
  for (int64_t i = 0; i < seqlen * head_dim; ++i) {
    rows[i] = static_cast<float>(i / head_dim);
  }
  for (auto* spec :
       {request.mutable_q(), request.mutable_k(), request.mutable_v()}) {
    spec->set_dtype(v1::DATA_TYPE_FP32);
    spec->set_layout(v1::LAYOUT_BSHD);
    for (const int64_t size : {int64_t{1}, seqlen, int64_t{1}, head_dim}) {
      spec->add_shape(size);
    }
  }
  const size_t bytes = zeros.size() * sizeof(float);
  request.set_q_data(zeros.data(), bytes);
  request.set_k_data(rows.data(), bytes);
  request.set_v_data(rows.data(), bytes);
  return request;
}

inline void ExpectMean(const v1::AttendResponse& reply, int64_t seqlen,
                       int64_t head_dim) {
  ASSERT_EQ(reply.output_data().size(), seqlen * head_dim * sizeof(float));
  std::vector<float> out(seqlen * head_dim);
  std::memcpy(out.data(), reply.output_data().data(),
              reply.output_data().size());
  for (const float value : out) {
    ASSERT_NEAR(value, static_cast<float>(seqlen - 1) / 2, 1e-3 * seqlen);
  }
}

inline v1::ErrorDetail DetailOf(const grpc::Status& status) {
  v1::RpcStatus rpc;
  v1::ErrorDetail detail;
  EXPECT_TRUE(rpc.ParseFromString(status.error_details()));
  if (rpc.details_size() > 0) rpc.details(0).UnpackTo(&detail);
  return detail;
}

}  // namespace attendant::testing
