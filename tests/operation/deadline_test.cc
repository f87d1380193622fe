// Calls whose time is over and calls that are cancelled, by the real server
// over a device that is held busy.
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "tests/integration/real_server.h"
#include "tests/operation/measured_load.h"
#include "tests/operation/paced_engine.h"
#include "tests/operation/record.h"
#include "tests/operation/watched_engine.h"

namespace attendant::testing {
namespace {

using server::Clock;
using std::chrono::milliseconds;
using std::chrono::system_clock;

// What never comes is a failure, not a test that hangs.
template <typename Condition>
void WaitFor(const Condition& condition) {
  const auto end = Clock::now() + std::chrono::seconds(100);
  while (!condition()) {
    ASSERT_LT(Clock::now(), end);
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

class DeadlineTest : public ::testing::Test {
 protected:
  DeadlineTest() {
    const server::ServerOptions options = SmallServerOptions();
    auto engine = MakePacedEngine(options.engine, 0, source_);
    EXPECT_TRUE(engine.ok()) << engine.status();
    auto watched = std::make_unique<WatchedEngine>(*std::move(engine));
    engine_ = watched.get();
    auto started = server::AttentionServer::Start(options, std::move(watched));
    EXPECT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
    address_ = server_->grpc_addresses()[0];
    stub_ = ConnectTo(address_);
  }
  ~DeadlineTest() override { source_->Open(); }

  // A call of its own thread keeps the device busy until source_ is opened.
  std::jthread HoldDevice() {
    source_->Close();
    std::jthread busy([this] { EXPECT_TRUE(Call(nullptr).ok()); });
    WaitFor([&] { return source_->launched_items() == 1; });
    return busy;
  }

  grpc::Status Call(grpc::ClientContext* context) {
    grpc::ClientContext own;
    if (context == nullptr) {
      SetPatience(&own);
      context = &own;
    }
    context->set_wait_for_ready(true);
    v1::AttendResponse reply;
    return stub_->Attend(context, request_, &reply);
  }

  int64_t Metric(const std::string& sample) const {
    const std::string text = "\n" + server_->MetricsText();
    const size_t at = text.find("\n" + sample + " ");
    return at == std::string::npos ? -1
                                   : std::atoll(&text[at + sample.size() + 2]);
  }
  int64_t Missed(const std::string& stage) const {
    return Metric("attendant_deadlines_missed_total{stage=\"" + stage + "\"}");
  }

  // Everything is given back, the next call is answered, and nothing is left
  // that a drain would wait for.
  void ExpectServesAndNothingLeft(Record* record) {
    const auto used = [&] { return engine_->Snapshot().host_pool_used_bytes; };
    const auto end = Clock::now() + std::chrono::seconds(20);
    WaitFor([&] { return used() == 0 || Clock::now() > end; });
    EXPECT_EQ(used(), 0);
    record->AtMost("pool_bytes_left", static_cast<double>(used()), 0);
    const grpc::Status status = Call(nullptr);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_TRUE(server_->Drain(Clock::now() + std::chrono::seconds(20)));
    EXPECT_EQ(engine_->Snapshot().queued_requests, 0);
    EXPECT_EQ(engine_->Snapshot().running_requests, 0);
  }

  const v1::AttendRequest request_ = LoadRequest(1, 64);
  std::shared_ptr<PacedSource> source_ = std::make_shared<PacedSource>(0);
  WatchedEngine* engine_ = nullptr;
  std::unique_ptr<server::AttentionServer> server_;
  std::string address_;
  std::unique_ptr<v1::AttentionService::Stub> stub_;
};

TEST_F(DeadlineTest, FiftyBehindABusyDeviceEndAtTheirDeadlines) {
  constexpr int kCalls = 50;
  std::jthread busy = HoldDevice();
  std::atomic<int> expired{0};
  {
    std::vector<std::jthread> callers;
    for (int i = 0; i < kCalls; ++i) {
      callers.emplace_back([&] {
        grpc::ClientContext context;
        context.set_deadline(system_clock::now() + milliseconds(50));
        expired +=
            Call(&context).error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
      });
    }
  }
  // All but the busy one. (On a slow machine some never get as far as here.)
  WaitFor([&] {
    return Metric("attendant_requests_in_flight{method=\"Attend\"}") == 1;
  });
  EXPECT_EQ(engine_->Snapshot().queued_requests, 0);
  EXPECT_EQ(expired, kCalls);
  EXPECT_EQ(source_->launched_items(), 1);
  const int64_t left = engine_->Snapshot().host_pool_used_bytes;
  source_->Open();
  busy.join();
  EXPECT_EQ(source_->launched_items(), 1);

  std::vector<double> late;
  for (const auto duration : engine_->lateness()) {
    late.push_back(Milliseconds(duration));
  }
  std::sort(late.begin(), late.end());
  Record record("deadline", "50 deadlines of 50 ms behind a busy device");
  record.Set("device", "held busy by the test; real server, in this process");
  record.Set("ended_in_queue", late.size());
  record.Set("deadlines_missed_total_queue", Missed("queue"));
  record.Set("deadlines_missed_total_receive", Missed("receive"));
  record.Set("pool_bytes_left_to_the_busy_call", left);
  record.Set("median_ms_after_deadline",
             late.empty() ? 0 : late[late.size() / 2]);
  record.AtMost("most_ms_after_deadline", late.empty() ? 0 : late.back(), 5);
  record.AtMost("launches_for_them",
                static_cast<double>(source_->launched_items() - 1), 0);
  ExpectServesAndNothingLeft(&record);
}

TEST_F(DeadlineTest, OfAHundredAndOneTheOneNotCancelledStartsNext) {
  constexpr int kCancelled = 100;
  std::jthread busy = HoldDevice();
  std::vector<grpc::ClientContext> contexts(kCancelled);
  for (grpc::ClientContext& context : contexts) SetPatience(&context);
  std::vector<std::jthread> callers;
  std::atomic<int> cancelled{0};
  const auto queued = [&] { return engine_->Snapshot().queued_requests; };
  for (grpc::ClientContext& context : contexts) {
    callers.emplace_back([&] {
      cancelled += Call(&context).error_code() == grpc::StatusCode::CANCELLED;
    });
  }
  WaitFor([&] { return queued() == kCancelled; });
  callers.emplace_back([&] { EXPECT_TRUE(Call(nullptr).ok()); });
  WaitFor([&] { return queued() == kCancelled + 1; });
  const auto begin = Clock::now();
  for (grpc::ClientContext& context : contexts) context.TryCancel();
  WaitFor([&] { return queued() == 1; });
  const auto took = Clock::now() - begin;
  source_->Open();
  callers.clear();
  busy.join();
  EXPECT_EQ(cancelled, kCancelled);
  EXPECT_EQ(source_->launched_items(), 2);
  Record record("deadline", "cancel 100 of 101");
  record.Set("ms_from_first_cancel_to_queue_of_one", Milliseconds(took));
  record.AtMost("launches_but_for_the_last",
                static_cast<double>(source_->launched_items() - 2), 0);
  ExpectServesAndNothingLeft(&record);
}

// Calls by hand: what they send and take is the test's to choose.
class HandCall {
 public:
  HandCall(const std::string& address, const std::string& method)
      : stub_(MakeChannel(address)) {
    SetPatience(&context_);
    call_ = stub_.PrepareCall(
        &context_, "/attendant.v1.AttentionService/" + method, &queue_);
    call_->StartCall(nullptr);
    Next();
  }
  ~HandCall() {
    context_.TryCancel();
    for (; pending_ > 0; --pending_) Next();
    grpc::Status status;
    call_->Finish(&status, nullptr);
    Next();
    queue_.Shutdown();
  }

  // Returns at once; nobody waits for the end.
  void Write(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    call_->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    ++pending_;
  }
  void WaitWritten() {
    Next();
    --pending_;
  }

 private:
  static std::shared_ptr<grpc::Channel> MakeChannel(
      const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(
        address, grpc::InsecureChannelCredentials(), arguments);
  }
  void Next() {
    void* tag = nullptr;
    bool ok = false;
    queue_.Next(&tag, &ok);
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  int pending_ = 0;
};

TEST_F(DeadlineTest, CancelledInTheMiddleOfTheirUploads) {
  const v1::AttendRequest large = LoadRequest(16, 4096);  // 24 MiB
  const std::string message = large.SerializeAsString();
  const auto chunks = ChunksOf(large, 1 << 20);
  const int rounds = IsRecording() ? 20 : 2;
  for (int round = 0; round < rounds; ++round) {
    const int64_t begun = server_->Begun();
    HandCall unary(address_, "Attend");
    unary.Write(message);
    HandCall stream(address_, "AttendStream");
    stream.Write(HeaderOf(large).SerializeAsString());
    stream.WaitWritten();
    for (int c = 0; c <= round % 4; ++c) {
      stream.Write(chunks[static_cast<size_t>(c)].SerializeAsString());
      stream.WaitWritten();
    }
    WaitFor([&] { return server_->Begun() == begun + 2; });
  }
  Record record("deadline", "cancelled in mid-upload");
  record.Set("calls", 2 * rounds);
  ExpectServesAndNothingLeft(&record);
}

TEST_F(DeadlineTest, CancelledInTheMiddleOfTheirDownloads) {
  // 64 queries of 64 heads over one key: cheap, and 16 MiB to send.
  v1::AttendRequest wide = LoadRequest(64, 1024);
  for (auto* spec : {wide.mutable_k(), wide.mutable_v()}) spec->set_shape(1, 1);
  for (auto* data : {wide.mutable_k_data(), wide.mutable_v_data()}) {
    data->resize(64 * 64 * 2);
  }
  wide.set_output_dtype(v1::DATA_TYPE_FP32);
  const std::string message = wide.SerializeAsString();
  const int rounds = IsRecording() ? 20 : 2;
  for (int round = 0; round < rounds; ++round) {
    const int64_t answered = server_->Answered();
    HandCall call(address_, "Attend");
    call.Write(message);
    // The answer is on its way and larger than the window: nobody reads it.
    WaitFor([&] { return server_->Answered() == answered + 1; });
    EXPECT_GT(engine_->Snapshot().host_pool_used_bytes, 0);
  }
  Record record("deadline", "cancelled in mid-download");
  record.Set("calls", rounds);
  ExpectServesAndNothingLeft(&record);
}

}  // namespace
}  // namespace attendant::testing
