#include "client/cpp/reply_decoder.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/client/cpp/echo_input.h"
#include "tests/client/cpp/fake_server.h"

namespace attendant::client {
namespace {

grpc::ByteBuffer AsMessage(const v1::GetServerInfoResponse& response) {
  const grpc::Slice bytes(response.SerializeAsString());
  return grpc::ByteBuffer(&bytes, 1);
}

TEST(ReplyDecoder, RefusesRepliesThatBreakTheContract) {
  const auto status_of = [](FakeServer::Answer answer, bool lse) {
    FakeServer server(std::move(answer));
    Input input;
    input.args.return_lse = lse;
    const Client client = Connect(server.target());
    return client.Attend(input.args, kPatient).status().code();
  };
  const auto short_bytes = [](grpc::ServerContext* context,
                              const v1::AttendRequest& request,
                              v1::AttendResponse* response) {
    EchoQ(context, request, response);
    response->mutable_output_data()->pop_back();
    return grpc::Status::OK;
  };
  const auto long_bytes = [](grpc::ServerContext* context,
                             const v1::AttendRequest& request,
                             v1::AttendResponse* response) {
    EchoQ(context, request, response);
    response->mutable_output_data()->append(1 << 20, 'x');
    return grpc::Status::OK;
  };
  const auto negative = [](grpc::ServerContext* context,
                           const v1::AttendRequest& request,
                           v1::AttendResponse* response) {
    EchoQ(context, request, response);
    response->mutable_output()->set_shape(0, -1);
    return grpc::Status::OK;
  };
  // 2^62 elements of 4 bytes are 0 bytes, modulo 2^64.
  const auto wrapped = [](grpc::ServerContext* context,
                          const v1::AttendRequest& request,
                          v1::AttendResponse* response) {
    EchoQ(context, request, response);
    response->mutable_output()->set_shape(0, int64_t{1} << 59);
    response->clear_output_data();
    return grpc::Status::OK;
  };
  const auto no_lse = [](grpc::ServerContext* context,
                         const v1::AttendRequest& request,
                         v1::AttendResponse* response) {
    EchoQ(context, request, response);
    response->clear_lse();
    return grpc::Status::OK;
  };
  EXPECT_EQ(status_of(short_bytes, false), absl::StatusCode::kInternal);
  EXPECT_EQ(status_of(long_bytes, false), absl::StatusCode::kInternal);
  EXPECT_EQ(status_of(negative, false), absl::StatusCode::kInternal);
  EXPECT_EQ(status_of(wrapped, false), absl::StatusCode::kInternal);
  EXPECT_EQ(status_of(no_lse, true), absl::StatusCode::kInternal);
}

TEST(ReplyDecoder, KnowsEveryBoundByItsName) {
  v1::GetServerInfoResponse response;
  v1::Bounds& bounds = *response.mutable_bounds();
  const google::protobuf::Descriptor* names = bounds.GetDescriptor();
  for (int i = 0; i < names->field_count(); ++i) {
    bounds.GetReflection()->SetInt64(&bounds, names->field(i), 100 + i);
  }
  const auto info = DecodeServerInfo(AsMessage(response));
  ASSERT_TRUE(info.ok()) << info.status();
  ASSERT_EQ(BoundFields().size(), static_cast<size_t>(names->field_count()));
  for (int i = 0; i < names->field_count(); ++i) {
    EXPECT_EQ(BoundFields()[i].name, names->field(i)->name());
    EXPECT_EQ(info->bounds.*BoundFields()[i].value, 100 + i);
  }
}

}  // namespace
}  // namespace attendant::client
