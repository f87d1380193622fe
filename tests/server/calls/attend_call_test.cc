#include "server/calls/attend_call.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>

#include <cstring>
#include <mutex>
#include <thread>

#include "server/log/log.h"
#include "server/request/errors.h"
#include "tests/server/served_engine.h"

namespace attendant::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::system_clock;
using ::testing::HasSubstr;

// Opens Attend, sends `message` (null = nothing), half-closes if told to, and
// waits for the end.
class RawCall {
 public:
  RawCall(const std::shared_ptr<grpc::Channel>& channel, bool half_close,
          const std::string& method = "Attend")
      : stub_(channel) {
    call_ = stub_.PrepareCall(
        &context_, "/attendant.v1.AttentionService/" + method, &queue_);
    call_->StartCall(nullptr);
    EXPECT_TRUE(Next());
    if (half_close) {
      call_->WritesDone(nullptr);
      Next();
    }
  }
  grpc::Status Finish() {
    grpc::Status status;
    call_->Finish(&status, nullptr);
    Next();
    return status;
  }
  void Cancel() { context_.TryCancel(); }
  grpc::ClientContext& context() { return context_; }

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

template <typename Condition>
void Await(const Condition& condition) {
  const auto end = system_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    ASSERT_LT(system_clock::now(), end);
    std::this_thread::yield();
  }
}

// An Attend on a thread of its own.
class BackgroundCall {
 public:
  BackgroundCall(ServedEngine& served, const v1::AttendRequest& request)
      : thread_([this, &served, request] {
          status_ = served.stub().Attend(&context_, request, &reply_);
        }) {}
  ~BackgroundCall() {
    if (thread_.joinable()) thread_.join();
  }
  grpc::ClientContext& context() { return context_; }
  const grpc::Status& Wait() {
    thread_.join();
    return status_;
  }

 private:
  grpc::ClientContext context_;
  v1::AttendResponse reply_;
  grpc::Status status_;
  std::thread thread_;
};

TEST(AttendCall, AnswersWithTimesThatAddUp) {
  ServedEngine served;
  v1::AttendRequest request = MeanRequest(33, 8);
  request.set_request_id("job-7");
  request.set_return_lse(true);
  grpc::ClientContext context;
  v1::AttendResponse reply;
  const grpc::Status status = served.stub().Attend(&context, request, &reply);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ExpectMean(reply, 33, 8);
  EXPECT_EQ(reply.request_id(), "job-7");
  EXPECT_EQ(reply.lse_data().size(), 33 * sizeof(float));
  EXPECT_EQ(reply.served_by().kernel(), "fake");
  EXPECT_EQ(reply.served_by().device_uuid(), "FAKE-0");
  EXPECT_EQ(reply.served_by().backend(), v1::BACKEND_CPU);
  EXPECT_EQ(reply.served_by().compute_dtype(), v1::DATA_TYPE_FP32);
  EXPECT_EQ(reply.batch().requests(), 1);
  EXPECT_EQ(reply.batch().tokens(), 33);
  const v1::StageTimes& times = reply.exposed();
  EXPECT_EQ(times.receive_ns() + times.queue_ns() + times.upload_ns() +
                times.kernel_ns() + times.download_ns() + times.send_ns(),
            times.total_ns());
  for (const int64_t ns : {times.receive_ns(), times.kernel_ns()}) {
    EXPECT_GT(ns, 0);
  }
  EXPECT_GE(times.send_ns(), 0);
  served.ExpectConservation("Attend");
  EXPECT_EQ(served.Metric("attendant_requests_finished_total{method=\"Attend\","
                          "code=\"OK\"}"),
            1);
  EXPECT_EQ(served.Metric("attendant_stage_duration_seconds_count{stage="
                          "\"kernel\"}"),
            1);
}

TEST(AttendCall, LargeBodyIsCopiedInPieces) {
  ServedEngine served;
  const v1::AttendRequest request = MeanRequest(20'000, 80);  // 3 x 6.4 MB
  // Attention of 20,000 rows in the plain reference takes too long: one query.
  v1::AttendRequest one_row = request;
  one_row.mutable_q()->set_shape(1, 1);
  one_row.mutable_q_data()->resize(80 * sizeof(float));
  grpc::ClientContext context;
  v1::AttendResponse reply;
  const grpc::Status status = served.stub().Attend(&context, one_row, &reply);
  ASSERT_TRUE(status.ok()) << status.error_message();
  std::vector<float> out(80);
  ASSERT_EQ(reply.output_data().size(), out.size() * sizeof(float));
  std::memcpy(out.data(), reply.output_data().data(),
              reply.output_data().size());
  for (const float value : out) EXPECT_NEAR(value, 19'999 / 2.0, 1);
}

TEST(AttendCall, CancelledInTheQueueNeverComputes) {
  ServedEngine served;
  served.engine().Hold(true);
  BackgroundCall call(served, MeanRequest(4, 8));
  served.engine().WaitForSubmitted(1);
  call.context().TryCancel();
  EXPECT_EQ(call.Wait().error_code(), grpc::StatusCode::CANCELLED);
  Await([&] {
    return served.Metric(
               "attendant_requests_cancelled_total{stage=\"queue\"}") == 1;
  });
  EXPECT_EQ(served.engine().Snapshot().host_pool_used_bytes, 0);
  EXPECT_EQ(served.engine().computed(), 0);
  served.ExpectConservation("Attend");
}

TEST(AttendCall, CallersDeadlineInTheQueueIsAMissedDeadline) {
  ServedEngine served;
  served.engine().Hold(true);
  // On a machine that stands still a call may not get as far as the queue.
  const auto missed = [&] {
    return served.Metric("attendant_deadlines_missed_total{stage=\"queue\"}");
  };
  for (milliseconds patience(250); missed() < 1 && patience < seconds(60);
       patience *= 2) {
    grpc::ClientContext context;
    context.set_deadline(system_clock::now() + patience);
    v1::AttendResponse reply;
    const grpc::Status status =
        served.stub().Attend(&context, MeanRequest(4, 8), &reply);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
    Await([&] {
      return served.Metric("attendant_requests_in_flight{method=\"Attend\"}") ==
             0;
    });
  }
  EXPECT_GE(missed(), 1);
  EXPECT_EQ(served.engine().computed(), 0);
}

TEST(AttendCall, ServersDeadlineEndsABodyThatNeverComes) {
  server::ServerOptions options = LoopbackOptions();
  options.bounds.default_deadline_ms = 100;
  ServedEngine served(options);
  RawCall call(served.channel(), /*half_close=*/false);
  EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(
      served.Metric("attendant_deadlines_missed_total{stage=\"receive\"}"), 1);
}

TEST(AttendCall, NoMessageIsInvalid) {
  ServedEngine served;
  RawCall call(served.channel(), /*half_close=*/true);
  const grpc::Status status = call.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("one request message"));
}

TEST(AttendCall, CancelledWhileTheBodyIsOnItsWay) {
  ServedEngine served;
  RawCall call(served.channel(), /*half_close=*/false);
  Await([&] {
    return served.Metric("attendant_requests_in_flight{method=\"Attend\"}") ==
           1;
  });
  call.Cancel();
  EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::CANCELLED);
  Await([&] {
    return served.Metric(
               "attendant_requests_cancelled_total{stage=\"receive\"}") == 1;
  });
  served.ExpectConservation("Attend");
}

TEST(AttendCall, TooManyBodiesAreRefusedBeforeTheyAreRead) {
  server::ServerOptions options = LoopbackOptions();
  options.max_uploads = 1;
  ServedEngine served(options);
  auto first = std::make_unique<RawCall>(served.channel(), false);
  Await([&] {
    return served.Metric("attendant_requests_in_flight{method=\"Attend\"}") ==
           1;
  });
  RawCall second(served.channel(), false);
  const grpc::Status refused = second.Finish();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(DetailOf(refused).field(), "uploads");
  EXPECT_EQ(second.context().GetServerTrailingMetadata().count(
                "grpc-retry-pushback-ms"),
            1u);
  first->Cancel();
  first->Finish();
  Await([&] {
    grpc::ClientContext context;
    v1::AttendResponse reply;
    return served.stub().Attend(&context, MeanRequest(4, 8), &reply).ok();
  });
}

TEST(AttendCall, TooLargeAMessageNamesTheBound) {
  server::ServerOptions options = LoopbackOptions();
  options.bounds.max_request_bytes = 10'000;
  ServedEngine served(options);
  grpc::ClientContext context;
  v1::AttendResponse reply;
  const grpc::Status status =
      served.stub().Attend(&context, MeanRequest(100, 100), &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(DetailOf(status).bound(), HasSubstr("max_request_bytes"));
  EXPECT_THAT(DetailOf(status).bound(), HasSubstr("10000"));
}

TEST(AttendCall, EnginesRefusalReachesTheCallerAndTheAuditLog) {
  ServedEngine served;
  std::string log;
  server::SetLogSink([&](const std::string& line) { log += line + "\n"; });
  served.engine().RefuseWith(
      server::Overloaded("queue", "3 requests", "at most 2", 123));
  grpc::ClientContext context;
  v1::AttendResponse reply;
  v1::AttendRequest request = MeanRequest(4, 8);
  request.set_request_id("job-8");
  const grpc::Status status = served.stub().Attend(&context, request, &reply);
  server::SetLogSink(nullptr);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(DetailOf(status).field(), "queue");
  EXPECT_THAT(log, HasSubstr("\"audit\":true,\"method\":\"Attend\""));
  EXPECT_THAT(log, HasSubstr("\"request_id\":\"job-8\""));
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto hint = trailers.find("grpc-retry-pushback-ms");
  ASSERT_NE(hint, trailers.end());
  EXPECT_EQ(hint->second, "123");
  EXPECT_EQ(
      served.Metric("attendant_requests_rejected_total{stage=\"receive\"}"), 1);
}

TEST(AttendCall, RequestIdIsInTheLog) {
  std::mutex mu;
  std::string log;
  server::SetLogSink([&](const std::string& line) {
    std::lock_guard lock(mu);
    log += line + "\n";
  });
  server::SetLogLevel(server::LogLevel::kDebug);
  {
    ServedEngine served;
    v1::AttendRequest good = MeanRequest(4, 8);
    good.set_request_id("good-1");
    v1::AttendRequest bad = MeanRequest(4, 8);
    bad.set_request_id("bad-2");
    bad.set_softcap(-1);
    for (const auto& request : {good, bad}) {
      grpc::ClientContext context;
      v1::AttendResponse reply;
      (void)served.stub().Attend(&context, request, &reply);
    }
  }
  server::SetLogLevel(server::LogLevel::kInfo);
  server::SetLogSink(nullptr);
  EXPECT_THAT(log, HasSubstr("answered\",\"request_id\":\"good-1\""));
  EXPECT_THAT(log, HasSubstr("failed\",\"request_id\":\"bad-2\""));
  EXPECT_THAT(log, HasSubstr("softcap"));
}

TEST(AttendCall, UnknownMethodIsUnimplemented) {
  ServedEngine served;
  RawCall call(served.channel(), false, "Detach");
  const grpc::Status status = call.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_THAT(status.error_message(), HasSubstr("Detach"));
  served.ExpectConservation("other");
}

}  // namespace
}  // namespace attendant::testing
