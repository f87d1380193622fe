#include "server/regions/region_transfer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "attendant/v1/region.grpc.pb.h"
#include "tests/server/served_engine.h"

namespace attendant::testing {
namespace {

using std::chrono::seconds;
using std::chrono::system_clock;

server::ServerOptions WithBuffers() {
  server::ServerOptions options = LoopbackOptions();
  options.regions.buffers = true;
  return options;
}

class RegionTransferTest : public ::testing::Test {
 protected:
  RegionTransferTest()
      : served_(WithBuffers()),
        stub_(v1::RegionService::NewStub(served_.channel())) {
    grpc::ClientContext context;
    Prepare(&context);
    v1::AllocateBufferRequest request;
    request.set_byte_length(4096);
    EXPECT_TRUE(stub_->AllocateBuffer(&context, request, &region_).ok());
  }
  void Prepare(grpc::ClientContext* context) {
    context->AddMetadata("attendant-owner", std::string(32, 'o'));
    context->set_deadline(system_clock::now() + seconds(60));
  }
  v1::WriteRequest Chunk(const std::string& data) {
    v1::WriteRequest chunk;
    chunk.set_name(region_.name());
    chunk.set_data(data);
    return chunk;
  }
  double Finished(const std::string& code) const {
    return served_.Metric(
        "attendant_requests_finished_total{method=\"RegionService\",code=\"" +
        code + "\"}");
  }
  void AwaitFinished(const std::string& code, double count) {
    const auto end = system_clock::now() + seconds(20);
    while (Finished(code) != count) {
      ASSERT_LT(system_clock::now(), end) << code << " " << Finished(code);
      std::this_thread::yield();
    }
  }

  ServedEngine served_;
  std::unique_ptr<v1::RegionService::Stub> stub_;
  v1::RegionStatus region_;
};

TEST_F(RegionTransferTest, AWriteIsOverWhenItsCallerSaysSo) {
  grpc::ClientContext context;
  Prepare(&context);
  v1::WriteResponse reply;
  const auto writer = stub_->Write(&context, &reply);
  EXPECT_TRUE(writer->Write(Chunk("abc")));
  EXPECT_TRUE(writer->WritesDone());
  EXPECT_TRUE(writer->Finish().ok());
  EXPECT_EQ(reply.bytes_written(), 3);
  AwaitFinished("OK", 2);  // with the buffer's own
}

TEST_F(RegionTransferTest, ACancelledWriteIsNotCountedAsDone) {
  grpc::ClientContext context;
  Prepare(&context);
  v1::WriteResponse reply;
  const auto writer = stub_->Write(&context, &reply);
  EXPECT_TRUE(writer->Write(Chunk("abc")));
  context.TryCancel();
  EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::CANCELLED);
  AwaitFinished("CANCELLED", 1);
  EXPECT_EQ(Finished("OK"), 1);
}

}  // namespace
}  // namespace attendant::testing
