#include "client/cpp/attend_stream.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attendant/v1/attention.grpc.pb.h"
#include "client/cpp/attendant_client.h"
#include "tests/client/cpp/no_more_threads.h"

namespace attendant::client {
namespace {

using ::testing::HasSubstr;
using Response = v1::AttendStreamResponse;
using Stream = grpc::ServerReaderWriter<Response, v1::AttendStreamRequest>;

// Says to each first stream of an upload what a test wants, after the first
// word only once it has `upload_bytes` of tensors by it, and is silent on those
// that join.
class ScriptedServer final : public v1::AttentionService::Service {
 public:
  explicit ScriptedServer(std::vector<Response> script, size_t upload_bytes = 0)
      : script_(std::move(script)), upload_bytes_(upload_bytes) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    target_ = "127.0.0.1:" + std::to_string(port);
  }

  grpc::Status AttendStream(grpc::ServerContext*, Stream* stream) override {
    v1::AttendStreamRequest request;
    size_t bytes = 0;
    if (stream->Read(&request) && request.has_header()) {
      for (const Response& response : script_) {
        stream->Write(response);
        while (bytes < upload_bytes_ && stream->Read(&request)) {
          bytes += request.chunk().data().size();
        }
      }
      return grpc::Status::OK;
    }
    while (stream->Read(&request)) continue;
    return grpc::Status::OK;
  }

  const std::string& target() const { return target_; }

 private:
  const std::vector<Response> script_;
  const size_t upload_bytes_;
  std::string target_;
  std::unique_ptr<grpc::Server> server_;
};

// O is [1, 2, 1, 2] in fp32.
Response Accepted() {
  Response response;
  v1::UploadAccepted* accepted = response.mutable_accepted();
  accepted->set_upload_id("0123456789abcdef");
  accepted->set_max_chunk_bytes(1 << 20);
  accepted->mutable_output()->set_dtype(v1::DATA_TYPE_FP32);
  accepted->mutable_output()->set_layout(v1::LAYOUT_BSHD);
  for (const int64_t size : {1, 2, 1, 2}) {
    accepted->mutable_output()->add_shape(size);
  }
  return response;
}

Response Chunk(int64_t offset, const std::vector<float>& values) {
  Response response;
  v1::TensorChunk* chunk = response.mutable_chunk();
  chunk->set_tensor(v1::STREAM_TENSOR_OUTPUT);
  chunk->set_byte_offset(offset);
  chunk->set_data(values.data(), values.size() * sizeof(float));
  return response;
}

Response Final() {
  Response response;
  response.mutable_final()->set_request_id("last");
  return response;
}

absl::StatusOr<AttendResult> Ask(const ScriptedServer& server, Road road,
                                 int64_t keys) {
  ClientOptions options;
  options.road = road;
  options.stripes = 2;
  options.retry.max_attempts = 1;
  const absl::StatusOr<Client> client =
      Client::Create(server.target(), options);
  EXPECT_TRUE(client.ok()) << client.status();
  const std::vector<float> values(2 * static_cast<size_t>(keys), 1.0f);
  AttendArgs args;
  args.q = args.k = args.v =
      TensorView{reinterpret_cast<const std::byte*>(values.data()),
                 DataType::kFloat32,
                 {1, 2, 1, 2},
                 {}};
  args.k.shape[1] = args.v.shape[1] = keys;
  return client->Attend(args, std::chrono::seconds(60));
}

absl::StatusOr<AttendResult> Attend(std::vector<Response> script, Road road) {
  const ScriptedServer server(std::move(script));
  return Ask(server, road, 2);
}

class AttendStreamTest : public ::testing::TestWithParam<Road> {
 protected:
  void ExpectBroken(std::vector<Response> script, const std::string& how) {
    const absl::Status status = Attend(std::move(script), GetParam()).status();
    EXPECT_TRUE(absl::IsInternal(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("breaks the contract"));
    EXPECT_THAT(status.message(), HasSubstr(how));
  }
};

TEST_P(AttendStreamTest, AnAnswerComesInChunksInAnyOrder) {
  const auto result = Attend(
      {Accepted(), Chunk(8, {3, 4}), Chunk(0, {1, 2}), Final()}, GetParam());
  ASSERT_TRUE(result.ok()) << result.status();
  float values[4];
  ASSERT_EQ(result->out.num_bytes, int64_t{sizeof(values)});
  std::memcpy(values, result->out.data, sizeof(values));
  EXPECT_THAT(values, ::testing::ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(result->request_id, "last");
}

TEST_P(AttendStreamTest, ACallGetsByWithoutThreadsOfItsOwn) {
  // Large enough for a second thread on the one stream.
  constexpr size_t kKeys = 1 << 20;
  const ScriptedServer server({Accepted(), Chunk(0, {1, 2, 3, 4}), Final()},
                              (2 + 2 * kKeys) * 2 * sizeof(float));
  const NoMoreThreads scarce;
  const auto result = Ask(server, GetParam(), kKeys);
  EXPECT_TRUE(result.ok()) << result.status();
}

TEST_P(AttendStreamTest, AnEndWithoutAnAcceptanceIsNoAnswer) {
  ExpectBroken({Final()}, "accepted");
}

TEST_P(AttendStreamTest, TwoAcceptancesAreOneTooMany) {
  ExpectBroken({Accepted(), Chunk(0, {1, 2, 3, 4}), Accepted(), Final()},
               "accepted");
}

TEST_P(AttendStreamTest, AChunkBeforeTheAcceptanceIsNowhere) {
  ExpectBroken({Chunk(0, {1, 2, 3, 4}), Accepted(), Final()}, "outside");
}

TEST_P(AttendStreamTest, ChunksAreHeldAgainstTheTensor) {
  ExpectBroken({Accepted(), Chunk(4, {1, 2, 3, 4}), Final()}, "outside");
  ExpectBroken({Accepted(), Chunk(-4, {1, 2}), Final()}, "outside");
}

TEST_P(AttendStreamTest, AnAnswerWithoutItsEndIsNone) {
  ExpectBroken({Accepted(), Chunk(0, {1, 2, 3, 4})}, "no final");
}

// What a joined stream might still bring is waited for, so one stream only.
TEST(AttendOverOneStream, ChunksWithGapsOrTwiceTheSameAreNoAnswer) {
  for (const auto& second : {Chunk(12, {4}), Chunk(0, {1, 2})}) {
    const absl::Status status =
        Attend({Accepted(), Chunk(0, {1, 2}), second, Final()}, Road::kStream)
            .status();
    EXPECT_TRUE(absl::IsInternal(status)) << status;
  }
}

INSTANTIATE_TEST_SUITE_P(Roads, AttendStreamTest,
                         ::testing::Values(Road::kStream, Road::kStriped),
                         [](const auto& road) {
                           return road.param == Road::kStream ? "Stream"
                                                              : "Striped";
                         });

}  // namespace
}  // namespace attendant::client
