#include "server/calls/attend_stream_call.h"

#include <gmock/gmock.h>

#include <cstring>
#include <thread>

#include "server/request/errors.h"
#include "tests/server/served_engine.h"
#include "tests/testing/stream_call.h"

namespace attendant::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::system_clock;
using ::testing::HasSubstr;
using Stubs = std::vector<v1::AttentionService::StubInterface*>;

template <typename Condition>
void Await(const Condition& condition) {
  const auto end = system_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    ASSERT_LT(system_clock::now(), end);
    std::this_thread::yield();
  }
}

void AwaitNothingHeld(ServedEngine& served) {
  Await([&] {
    return served.engine().Snapshot().host_pool_used_bytes == 0 &&
           served.Metric(
               "attendant_requests_in_flight{method="
               "\"AttendStream\"}") == 0;
  });
}

// A stream that a test drives message by message.
class TestStream {
 public:
  explicit TestStream(v1::AttentionService::StubInterface& stub,
                      milliseconds timeout = milliseconds(20'000)) {
    context_.set_deadline(system_clock::now() + timeout);
    stream_ = stub.AttendStream(&context_);
  }
  bool Send(const v1::AttendStreamRequest& message) {
    return stream_->Write(message);
  }
  bool Join(const std::string& id) {
    v1::AttendStreamRequest message;
    message.mutable_join()->set_upload_id(id);
    return Send(message);
  }
  // The id of the upload; empty if the stream ended instead.
  std::string Accepted() {
    v1::AttendStreamResponse response;
    if (!stream_->Read(&response)) return "";
    EXPECT_TRUE(response.has_accepted());
    return response.accepted().upload_id();
  }
  void HalfClose() { stream_->WritesDone(); }
  void Cancel() { context_.TryCancel(); }
  grpc::Status End() {
    v1::AttendStreamResponse response;
    while (stream_->Read(&response)) continue;
    return stream_->Finish();
  }
  grpc::ClientContext& context() { return context_; }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriterInterface<v1::AttendStreamRequest,
                                                    v1::AttendStreamResponse>>
      stream_;
};

TEST(AttendStreamCall, AnswersAsUnaryDoesInAnyChunksAndOrder) {
  ServedEngine served;
  v1::AttendRequest request = MeanRequest(33, 8);
  request.set_request_id("stream-7");
  request.set_return_lse(true);
  grpc::ClientContext context;
  v1::AttendResponse unary, reply;
  ASSERT_TRUE(served.stub().Attend(&context, request, &unary).ok());
  for (const int64_t chunk_bytes : {8, 24, 400, 1 << 20}) {
    for (const unsigned seed : {0u, 1u, 2u}) {
      const grpc::Status status = AttendByStreams({&served.stub()}, request,
                                                  {chunk_bytes, seed}, &reply);
      ASSERT_TRUE(status.ok()) << status.error_message();
      EXPECT_EQ(reply.output_data(), unary.output_data());
      EXPECT_EQ(reply.lse_data(), unary.lse_data());
      EXPECT_EQ(reply.request_id(), "stream-7");
      const v1::StageTimes& t = reply.exposed();
      EXPECT_EQ(t.receive_ns() + t.queue_ns() + t.upload_ns() + t.kernel_ns() +
                    t.download_ns() + t.send_ns(),
                t.total_ns());
    }
  }
  served.ExpectConservation("AttendStream");
  AwaitNothingHeld(served);
}

TEST(AttendStreamCall, LargeChunksAreCopiedByOtherThreads) {
  ServedEngine served;
  v1::AttendRequest request = MeanRequest(20'000, 80);  // 3 x 6.4 MB
  request.mutable_q()->set_shape(1, 1);
  request.mutable_q_data()->resize(80 * sizeof(float));
  v1::AttendResponse reply;
  const grpc::Status status = AttendByStreams(
      {&served.stub()}, request, {.chunk_bytes = 1 << 20, .seed = 3}, &reply);
  ASSERT_TRUE(status.ok()) << status.error_message();
  std::vector<float> out(80);
  ASSERT_EQ(reply.output_data().size(), out.size() * sizeof(float));
  std::memcpy(out.data(), reply.output_data().data(),
              reply.output_data().size());
  for (const float value : out) EXPECT_NEAR(value, 19'999 / 2.0, 1);
}

TEST(AttendStreamCall, ARequestWithoutBytesIsAnsweredAtOnce) {
  ServedEngine served;
  v1::AttendRequest request = MeanRequest(0, 8);
  v1::AttendResponse reply;
  const grpc::Status status =
      AttendByStreams({&served.stub()}, request, {}, &reply);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(reply.output().shape(1), 0);
}

TEST(AttendStreamCall, ARefusalComesBeforeTheBody) {
  ServedEngine served;
  served.engine().RefuseWith(
      server::Overloaded("queue", "full", "not full", 70));
  TestStream stream(served.stub());
  ASSERT_TRUE(stream.Send(HeaderOf(MeanRequest(100'000, 256))));
  EXPECT_EQ(stream.Accepted(), "");
  const grpc::Status status = stream.End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  const auto& trailers = stream.context().GetServerTrailingMetadata();
  EXPECT_EQ(trailers.count("grpc-retry-pushback-ms"), 1u);
  EXPECT_EQ(served.engine().Snapshot().host_pool_used_bytes, 0);
}

TEST(AttendStreamCall, SeveralConnectionsFillOneRequest) {
  ServedEngine served;
  std::vector<std::unique_ptr<v1::AttentionService::Stub>> owned;
  Stubs stubs;
  for (int s = 0; s < 4; ++s) {
    owned.push_back(v1::AttentionService::NewStub(
        Connect(served.server().grpc_addresses()[0])));
    stubs.push_back(owned.back().get());
  }
  const v1::AttendRequest request = MeanRequest(400, 64);
  for (const unsigned seed : {0u, 5u}) {
    v1::AttendResponse reply;
    const grpc::Status status =
        AttendByStreams(stubs, request, {4096, seed}, &reply);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ExpectMean(reply, 400, 64);
  }
  AwaitNothingHeld(served);
  EXPECT_EQ(served.Metric("attendant_requests_finished_total{method="
                          "\"AttendStream\",code=\"OK\"}"),
            8);
}

TEST(AttendStreamCall, ALostJoinedStreamEndsTheUpload) {
  ServedEngine served;
  TestStream first(served.stub()), joined(served.stub());
  first.Send(HeaderOf(MeanRequest(4, 2)));
  joined.Join(first.Accepted());
  EXPECT_NE(joined.Accepted(), "");
  joined.Cancel();
  const grpc::Status status = first.End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("joined stream"));
  AwaitNothingHeld(served);
}

TEST(AttendStreamCall, AFaultOnOneStreamEndsAll) {
  ServedEngine served;
  TestStream first(served.stub()), joined(served.stub());
  const auto chunks = ChunksOf(MeanRequest(4, 2), 32);
  first.Send(HeaderOf(MeanRequest(4, 2)));
  joined.Join(first.Accepted());
  joined.Accepted();
  first.Send(chunks[0]);
  joined.Send(chunks[0]);
  for (TestStream* stream : {&first, &joined}) {
    const grpc::Status status = stream->End();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(DetailOf(status).field(), "chunk.byte_offset");
  }
  AwaitNothingHeld(served);
}

TEST(AttendStreamCall, AnUploadIsKnownUntilItEndsAndNoLonger) {
  ServedEngine served;
  served.engine().Hold(true);
  const v1::AttendRequest request = MeanRequest(4, 2);
  TestStream first(served.stub()), late(served.stub()), later(served.stub());
  first.Send(HeaderOf(request));
  const std::string id = first.Accepted();
  for (const auto& chunk : ChunksOf(request, 32)) first.Send(chunk);
  served.engine().WaitForSubmitted(1);
  // All bytes are there, the answer is not: it may help to carry that.
  late.Join(id);
  EXPECT_EQ(late.Accepted(), id);
  served.engine().Hold(false);
  EXPECT_TRUE(first.End().ok());
  EXPECT_TRUE(late.End().ok());
  later.Join(id);
  const grpc::Status status = later.End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message().find(id), std::string::npos);
  AwaitNothingHeld(served);
}

TEST(AttendStreamCall, AChunkAfterTheLastByteEndsTheUpload) {
  ServedEngine served;
  served.engine().Hold(true);
  const v1::AttendRequest request = MeanRequest(4, 2);
  const auto chunks = ChunksOf(request, 32);
  TestStream stream(served.stub());
  stream.Send(HeaderOf(request));
  for (const auto& chunk : chunks) stream.Send(chunk);
  stream.Send(chunks[1]);
  const grpc::Status status = stream.End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(DetailOf(status).field(), "chunk.byte_offset");
  EXPECT_EQ(served.engine().computed(), 0);
  served.engine().Hold(false);
  AwaitNothingHeld(served);
}

TEST(AttendStreamCall, JoiningTwiceOnAStreamEndsTheUpload) {
  ServedEngine served;
  TestStream first(served.stub()), joined(served.stub());
  first.Send(HeaderOf(MeanRequest(4, 2)));
  const std::string id = first.Accepted();
  joined.Join(id);
  joined.Accepted();
  joined.Join(id);
  EXPECT_EQ(joined.End().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(first.End().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  AwaitNothingHeld(served);
}

TEST(AttendStreamCall, CancelledAndExpiredUploadsGiveEverythingBack) {
  ServedEngine served;
  const v1::AttendRequest request = MeanRequest(1000, 64);
  const auto chunks = ChunksOf(request, 1 << 16);
  {
    TestStream stream(served.stub());
    stream.Send(HeaderOf(request));
    EXPECT_NE(stream.Accepted(), "");
    stream.Send(chunks[0]);
    stream.Cancel();
    EXPECT_EQ(stream.End().error_code(), grpc::StatusCode::CANCELLED);
    AwaitNothingHeld(served);
  }
  // On a machine that stands still a stream may expire before it is accepted.
  bool accepted = false;
  for (milliseconds patience(100); !accepted && patience < seconds(60);
       patience *= 2) {
    TestStream stream(served.stub(), patience);
    stream.Send(HeaderOf(request));
    accepted = stream.Accepted() != "";
    stream.Send(chunks[0]);
    EXPECT_EQ(stream.End().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
    AwaitNothingHeld(served);
  }
  EXPECT_TRUE(accepted);
  EXPECT_EQ(served.engine().computed(), 0);
}

TEST(AttendStreamCall, TheServersDeadlineCoversUploadAndSending) {
  server::ServerOptions options = LoopbackOptions();
  options.bounds.default_deadline_ms = 200;
  ServedEngine served(options);
  TestStream upload(served.stub());
  upload.Send(HeaderOf(MeanRequest(4, 2)));
  EXPECT_EQ(upload.End().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);

  // A caller that does not read its 32 MB answer, by either door.
  v1::AttendRequest request = MeanRequest(1, 8);
  request.mutable_q()->set_shape(1, 1'000'000);
  request.set_q_data(std::string(32'000'000, '\0'));
  TestStream silent(served.stub());
  silent.Send(HeaderOf(request));
  silent.Accepted();
  for (const auto& chunk : ChunksOf(request, 1 << 20)) {
    if (!silent.Send(chunk)) break;
  }
  AwaitNothingHeld(served);
  EXPECT_FALSE(silent.End().ok());
}

TEST(AttendStreamCall, DrainingRefusesHeadersAndServesWhatIsUnderWay) {
  ServedEngine served;
  const v1::AttendRequest request = MeanRequest(4, 2);
  const auto chunks = ChunksOf(request, 32);
  TestStream first(served.stub());
  first.Send(HeaderOf(request));
  const std::string id = first.Accepted();
  std::thread drain([&] {
    EXPECT_TRUE(
        served.server().Drain(server::Clock::now() + std::chrono::seconds(20)));
  });
  grpc::Status refused;
  do {
    v1::AttendResponse reply;
    refused = AttendByStreams({&served.stub()}, request, {}, &reply);
  } while (refused.ok());
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  TestStream joined(served.stub());
  joined.Join(id);
  EXPECT_EQ(joined.Accepted(), id);
  for (const auto& chunk : chunks) joined.Send(chunk);
  joined.HalfClose();
  EXPECT_TRUE(first.End().ok());
  EXPECT_TRUE(joined.End().ok());
  drain.join();
}

TEST(AttendStreamCall, CompressedMessagesAreRefused) {
  ServedEngine served;
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  v1::AttendResponse reply;
  v1::AttendRequest request = MeanRequest(100, 64);
  EXPECT_EQ(served.stub().Attend(&context, request, &reply).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

}  // namespace
}  // namespace attendant::testing
