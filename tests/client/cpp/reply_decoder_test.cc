#include "client/cpp/reply_decoder.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/client/cpp/echo_input.h"
#include "tests/client/cpp/fake_server.h"

namespace attendant::client {
namespace {

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

}  // namespace
}  // namespace attendant::client
