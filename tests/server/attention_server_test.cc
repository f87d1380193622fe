#include "server/attention_server.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "server/health.h"
#include "tests/integration/http_get.h"
#include "tests/server/served_engine.h"

namespace attendant::testing {
namespace {

using std::chrono::seconds;
using std::chrono::system_clock;
using ::testing::HasSubstr;

// A call of any method: one message sent, then one read at a time.
class RawStream {
 public:
  RawStream(const std::shared_ptr<grpc::Channel>& channel,
            const std::string& method, const std::string& message)
      : stub_(channel) {
    context_.set_deadline(system_clock::now() + seconds(20));
    call_ = stub_.PrepareCall(&context_, method, &queue_);
    call_->StartCall(nullptr);
    Next();
    const grpc::Slice slice(message);
    call_->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    Next();
    call_->WritesDone(nullptr);
    Next();
  }
  ~RawStream() {
    context_.TryCancel();
    grpc::Status status;
    call_->Finish(&status, nullptr);
    Next();
  }
  // The next message that the server sends; empty at the end.
  std::string Read() {
    grpc::ByteBuffer reply;
    call_->Read(&reply, nullptr);
    std::string bytes;
    if (!Next()) return bytes;
    std::vector<grpc::Slice> slices;
    reply.Dump(&slices);
    for (const grpc::Slice& slice : slices) {
      bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
    return bytes;
  }

 private:
  bool Next() {
    void* tag = nullptr;
    bool ok = false;
    queue_.Next(&tag, &ok);
    return ok;
  }
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

// grpc.health.v1 by hand (its generated code is not packaged):
// request {string service = 1}, reply {enum status = 1}.
constexpr int kUnknown = 0, kServing = 1, kNotServing = 2;

class HealthCall {
 public:
  HealthCall(const std::shared_ptr<grpc::Channel>& channel,
             const std::string& method, const std::string& service)
      : stream_(channel, "/grpc.health.v1.Health/" + method,
                service.empty()
                    ? service
                    : "\x0a" +
                          std::string(1, static_cast<char>(service.size())) +
                          service) {}
  // The next status that the server tells.
  int Read() {
    const std::string bytes = stream_.Read();
    return bytes.size() == 2 && bytes[0] == 8 ? bytes[1] : kUnknown;
  }

 private:
  RawStream stream_;
};

int Check(ServedEngine& served, const std::string& service) {
  return HealthCall(served.channel(), "Check", service).Read();
}

grpc::Status Attend(ServedEngine& served) {
  grpc::ClientContext context;
  v1::AttendResponse reply;
  return served.stub().Attend(&context, MeanRequest(4, 8), &reply);
}

TEST(AttentionServer, StatusPageShowsTheSnapshotOfMetrics) {
  ServedEngine served;
  ASSERT_TRUE(Attend(served).ok());
  grpc::ClientContext context;
  v1::AttendResponse reply;
  v1::AttendRequest request = MeanRequest(4, 8);
  request.set_request_id("bad-1");
  request.mutable_q()->mutable_shape()->Clear();
  EXPECT_FALSE(served.stub().Attend(&context, request, &reply).ok());
  const std::string& http = served.server().http_address();
  EXPECT_THAT(HttpAsk(http, "GET /statusz"), HasSubstr("<!doctype html>"));
  EXPECT_THAT(HttpAsk(http, "GET /statusz/page.js"), HasSubstr("statusz.json"));
  const std::string answer = HttpAsk(http, "GET /statusz.json");
  const size_t body = answer.find("\r\n\r\n");
  ASSERT_NE(body, std::string::npos);
  const auto status = nlohmann::json::parse(answer.substr(body + 4));
  EXPECT_EQ(status["errors"][0]["request_id"], "bad-1");
  EXPECT_EQ(status["errors"][0]["code"], "INVALID_ARGUMENT");
  double finished = 0;
  for (const auto& sample :
       status["metrics"]["attendant_requests_finished_total"]) {
    finished += sample["value"].get<double>();
  }
  EXPECT_EQ(finished, 2);
  EXPECT_EQ(status["flags"][0]["name"], "listen");
}

TEST(AttentionServer, ServesEveryHealthName) {
  ServedEngine served;
  for (const char* name :
       {"", "live", "ready", "attendant.v1.AttentionService"}) {
    EXPECT_EQ(Check(served, name), kServing) << name;
  }
}

TEST(AttentionServer, ReflectionNamesTheServices) {
  ServedEngine served;
  // ServerReflectionRequest {string list_services = 7}
  RawStream reflection(
      served.channel(),
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
      std::string("\x3a\x00", 2));
  const std::string services = reflection.Read();
  EXPECT_THAT(services, HasSubstr("attendant.v1.AttentionService"));
  EXPECT_THAT(services, HasSubstr("grpc.health.v1.Health"));
}

TEST(AttentionServer, WatchSeesTheDrainAndLivenessDoesNot) {
  ServedEngine served;
  HealthCall watch(served.channel(), "Watch", "ready");
  ASSERT_EQ(watch.Read(), kServing);
  served.server().StopBeingReady();
  EXPECT_EQ(watch.Read(), kNotServing);
  EXPECT_EQ(Check(served, "live"), kServing);
  // The lame duck still serves.
  EXPECT_TRUE(Attend(served).ok());
}

TEST(AttentionServer, DrainFinishesWhatRunsAndRefusesWhatComes) {
  ServedEngine served;
  served.engine().Hold(true);
  grpc::Status running;
  std::thread caller([&] { running = Attend(served); });
  served.engine().WaitForSubmitted(1);
  bool all = false;
  std::thread drain(
      [&] { all = served.server().Drain(server::Clock::now() + seconds(20)); });
  while (served.Metric("attendant_ready") != 0) std::this_thread::yield();
  // Ready goes first, then the refusal: wait for the latter.
  grpc::Status refused;
  do {
    grpc::ClientContext context;
    context.set_deadline(system_clock::now() + std::chrono::milliseconds(50));
    v1::AttendResponse reply;
    refused = served.stub().Attend(&context, MeanRequest(4, 8), &reply);
  } while (refused.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(refused.error_message(), HasSubstr("draining"));
  served.engine().Hold(false);
  drain.join();
  caller.join();
  EXPECT_TRUE(running.ok()) << running.error_message();
  EXPECT_TRUE(all);
}

TEST(AttentionServer, HealthWatchersDoNotHoldUpADrain) {
  ServedEngine served;
  HealthCall watch(served.channel(), "Watch", "");
  ASSERT_EQ(watch.Read(), kServing);
  EXPECT_TRUE(served.server().Drain(server::Clock::now() + seconds(60)));
  EXPECT_EQ(watch.Read(), kNotServing);
}

TEST(AttentionServer, DrainThatRunsOutOfTimeSaysSo) {
  ServedEngine served;
  served.engine().Hold(true);
  grpc::Status running;
  std::thread caller([&] { running = Attend(served); });
  served.engine().WaitForSubmitted(1);
  EXPECT_FALSE(served.server().Drain(server::Clock::now()));
  served.engine().Hold(false);
  caller.join();
  EXPECT_TRUE(served.server().Drain(server::Clock::now() + seconds(20)));
}

TEST(AttentionServer, BrokenEngineIsNeitherLiveNorReady) {
  ServedEngine served;
  HealthCall watch(served.channel(), "Watch", "");
  ASSERT_EQ(watch.Read(), kServing);
  EXPECT_TRUE(served.server().CheckHealth());
  served.engine().BreakWith("illegal address");
  EXPECT_FALSE(served.server().CheckHealth());
  EXPECT_EQ(watch.Read(), kNotServing);
  EXPECT_EQ(Check(served, "live"), kNotServing);
  EXPECT_THAT(served.server().health().why_not_live(),
              HasSubstr("illegal address"));
  EXPECT_EQ(Attend(served).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(served.Metric("attendant_healthy"), 0);
}

TEST(AttentionServer, InfoTellsVersionDeviceBoundsAndKernels) {
  server::ServerOptions options = LoopbackOptions();
  options.bounds.max_seqlen = 12'345;
  ServedEngine served(options);
  grpc::ClientContext context;
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(served.stub().GetServerInfo(&context, {}, &info).ok());
  EXPECT_FALSE(info.version().empty());
  EXPECT_THAT(info.build(), HasSubstr("cuda"));
  ASSERT_EQ(info.devices_size(), 1);
  EXPECT_EQ(info.devices(0).uuid(), "FAKE-0");
  EXPECT_EQ(info.bounds().max_seqlen(), 12'345);
  ASSERT_EQ(info.capabilities_size(), 1);  // rows of other devices are left out
  EXPECT_EQ(info.capabilities(0).kernel(), "cpu");
  EXPECT_EQ(info.capabilities(0).output_dtypes_size(), 3);
  EXPECT_GT(info.uptime_ns(), 0);
  served.ExpectConservation("GetServerInfo");
}

TEST(AttentionServer, InfoRefusesFieldsItDoesNotKnow) {
  ServedEngine served;
  v1::GetServerInfoRequest request;
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(77, 1);
  grpc::ClientContext context;
  v1::GetServerInfoResponse info;
  const grpc::Status status =
      served.stub().GetServerInfo(&context, request, &info);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_THAT(status.error_message(), HasSubstr("77"));
}

TEST(AttentionServer, AddressInUseIsAnError) {
  ServedEngine first;
  server::ServerOptions options = LoopbackOptions();
  options.listen = first.server().grpc_addresses()[0];
  const auto second = server::AttentionServer::Start(
      options, std::make_unique<FakeAttentionEngine>());
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("--listen is '" + options.listen));
}

TEST(AttentionServer, UnixSocketServesToo) {
  server::ServerOptions options = LoopbackOptions();
  const std::string path = "unix:" + ::testing::TempDir() +
                           "/attendant_server_test_" + std::to_string(getpid());
  options.listen = "127.0.0.1:0," + path;
  ServedEngine served(options);
  ASSERT_EQ(served.server().grpc_addresses().size(), 2u);
  const auto stub = v1::AttentionService::NewStub(
      Connect(served.server().grpc_addresses()[1]));
  grpc::ClientContext context;
  v1::AttendResponse reply;
  EXPECT_TRUE(stub->Attend(&context, MeanRequest(4, 8), &reply).ok());
}

}  // namespace
}  // namespace attendant::testing
