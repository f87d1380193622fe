#include "server/request/stream_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "server/request/bounds.h"
#include "server/request/errors.h"
#include "tests/testing/malformed_requests.h"
#include "tests/testing/stream_call.h"
#include "tests/testing/wire_bytes.h"

namespace attendant::server {
namespace {

using attendant::testing::BytesOf;
using attendant::testing::GoldenBytes;
using attendant::testing::GoldenRequest;
using attendant::testing::OneSlice;
using attendant::testing::PlainPool;
using ::testing::HasSubstr;

absl::StatusOr<StreamPart> ParseBytes(const std::string& bytes) {
  return ParseStreamRequest(OneSlice(bytes));
}

TEST(StreamMessage, GoldenHeaderJoinAndChunk) {
  const auto header = ParseBytes(GoldenBytes("stream_header.hex"));
  ASSERT_TRUE(header.ok()) << header.status();
  const ParsedRequest& request = std::get<StreamHeader>(*header).request;
  EXPECT_EQ(request.header.request_id(), "golden-1");
  EXPECT_EQ(request.tensors[0].bytes, kInChunks);
  const auto join = ParseBytes(GoldenBytes("stream_join.hex"));
  ASSERT_TRUE(join.ok()) << join.status();
  EXPECT_EQ(std::get<StreamJoin>(*join).upload_id, "0123456789abcdef");
  const std::string bytes = GoldenBytes("stream_chunk.hex");
  const auto chunk = ParseBytes(bytes);
  ASSERT_TRUE(chunk.ok()) << chunk.status();
  const StreamChunk& k = std::get<StreamChunk>(*chunk);
  EXPECT_EQ(k.tensor, v1::STREAM_TENSOR_K);
  EXPECT_EQ(k.byte_offset, 8);
  EXPECT_EQ(k.bytes, 16);
  EXPECT_EQ(bytes.substr(static_cast<size_t>(k.message_offset)),
            GoldenRequest().k_data().substr(8, 16));
}

TEST(StreamMessage, GoldenBytesAreWhatGeneratedCodeWrites) {
  EXPECT_EQ(attendant::testing::HeaderOf(GoldenRequest()).SerializeAsString(),
            GoldenBytes("stream_header.hex"));
  v1::AttendStreamRequest join;
  join.mutable_join()->set_upload_id("0123456789abcdef");
  EXPECT_EQ(join.SerializeAsString(), GoldenBytes("stream_join.hex"));
}

TEST(StreamMessage, OutputChunkIsWhatGeneratedCodeReads) {
  PlainPool pool;
  auto block = std::make_shared<HostBlock>(*pool.Allocate(64));
  std::memset(block->data(), 7, 64);
  const std::string bytes =
      BytesOf(EncodeChunk(v1::STREAM_TENSOR_LSE, 12, block, 32, 8));
  EXPECT_EQ(bytes, GoldenBytes("stream_output.hex"));
  v1::AttendStreamResponse response;
  ASSERT_TRUE(response.ParseFromString(bytes));
  EXPECT_EQ(response.chunk().tensor(), v1::STREAM_TENSOR_LSE);
  EXPECT_EQ(response.chunk().byte_offset(), 12);
  EXPECT_EQ(response.chunk().data(), std::string(8, 7));
}

TEST(StreamMessage, TheBlockLivesAsLongAsTheMessage) {
  PlainPool pool;
  {
    auto block = std::make_shared<HostBlock>(*pool.Allocate(64));
    const grpc::ByteBuffer message =
        EncodeChunk(v1::STREAM_TENSOR_OUTPUT, 0, block, 0, 64);
    block.reset();
    EXPECT_EQ(pool.used_bytes(), 64);
  }
  EXPECT_EQ(pool.used_bytes(), 0);
}

TEST(StreamMessage, AHeaderBeyondAnyBoundIsRefusedByItsSize) {
  v1::AttendStreamRequest message;
  message.mutable_chunk()->set_data(
      std::string(static_cast<size_t>(kMaxChunkBytes) + 4096, 'x'));
  const auto part = ParseBytes(message.SerializeAsString());
  EXPECT_EQ(part.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(DetailOf(part.status())->field(), "message");
}

TEST(StreamMessage, ErrorsInTheHeaderNameItsFields) {
  v1::AttendStreamRequest message =
      attendant::testing::HeaderOf(GoldenRequest());
  message.mutable_header()->set_v_data("data");
  const auto part = ParseBytes(message.SerializeAsString());
  EXPECT_EQ(DetailOf(part.status())->field(), "header.v_data");
  EXPECT_THAT(DetailOf(part.status())->bound(), HasSubstr("chunks"));
}

}  // namespace
}  // namespace attendant::server
