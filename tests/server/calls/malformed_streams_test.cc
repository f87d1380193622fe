// Streams that break the protocol, each refused with its field, value and
// bound, each followed by a good call on the same server, nothing kept.
#include "tests/server/calls/malformed_streams.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>

#include <string>
#include <vector>

namespace attendant::testing {
namespace {

using ::testing::HasSubstr;

// Sends the messages as they are and reads to the end.
grpc::Status Send(const std::shared_ptr<grpc::Channel>& channel,
                  const StreamMessages& messages) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  void* tag = nullptr;
  bool ok = false;
  const auto call = stub.PrepareCall(
      &context, "/attendant.v1.AttentionService/AttendStream", &queue);
  call->StartCall(nullptr);
  queue.Next(&tag, &ok);
  for (const std::string& message : messages) {
    const grpc::Slice slice(message);
    call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    queue.Next(&tag, &ok);
    if (!ok) break;
  }
  call->WritesDone(nullptr);
  queue.Next(&tag, &ok);
  grpc::ByteBuffer reply;
  do {
    call->Read(&reply, nullptr);
    queue.Next(&tag, &ok);
  } while (ok);
  grpc::Status status;
  call->Finish(&status, nullptr);
  queue.Next(&tag, &ok);
  return status;
}

TEST(MalformedStreams, EachIsRefusedAndTheNextCallServed) {
  ServedEngine served;
  std::vector<MalformedStream> all = MalformedMessages();
  for (const MalformedStream& more : MalformedOrders()) all.push_back(more);
  EXPECT_GE(all.size(), 40u);
  for (const MalformedStream& malformed : all) {
    SCOPED_TRACE(malformed.name);
    const grpc::Status status = Send(served.channel(), malformed.messages);
    EXPECT_EQ(status.error_code(), malformed.code) << status.error_message();
    const v1::ErrorDetail detail = DetailOf(status);
    EXPECT_EQ(detail.field(), malformed.field);
    EXPECT_THAT(detail.value(), HasSubstr(malformed.value));
    EXPECT_THAT(detail.bound(), HasSubstr(malformed.bound));
    v1::AttendResponse reply;
    ASSERT_TRUE(AttendByStreams({&served.stub()}, StreamedRequest(),
                                {.chunk_bytes = 16}, &reply)
                    .ok());
    ExpectMean(reply, 4, 2);
  }
  served.ExpectConservation("AttendStream");
  while (served.engine().Snapshot().host_pool_used_bytes != 0) {
    std::this_thread::yield();
  }
}

}  // namespace
}  // namespace attendant::testing
