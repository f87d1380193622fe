#include "server/attention_service.h"

#include <grpcpp/support/proto_buffer_reader.h>

#include <string>

#include "attendant/v1/attention.grpc.pb.h"
#include "server/errors.h"
#include "server/server_info.h"
#include "server/wire_codec.h"

namespace attendant::server {
namespace {

constexpr char kAttend[] = "/attendant.v1.AttentionService/Attend";
constexpr char kGetServerInfo[] =
    "/attendant.v1.AttentionService/GetServerInfo";

grpc::ByteBuffer Serialized(const google::protobuf::Message& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

// OK, or why `message` is not the request that has no fields.
absl::Status CheckEmptyRequest(grpc::ByteBuffer* message) {
  grpc::ProtoBufferReader reader(message);
  v1::GetServerInfoRequest request;
  if (!request.ParseFromZeroCopyStream(&reader)) {
    return absl::InvalidArgumentError(
        "the message is not a GetServerInfoRequest");
  }
  return CheckNoUnknownFields(request);
}

// Deletes itself. One read, one answer.
class InfoCall final : public grpc::ServerGenericBidiReactor {
 public:
  InfoCall(CallEnvironment* environment, Clock::time_point server_started)
      : env_(environment), server_started_(server_started) {
    env_->metrics->Started(Method::kGetServerInfo);
    StartRead(&message_);
  }

  void OnReadDone(bool ok) override {
    const absl::Status status =
        ok ? CheckEmptyRequest(&message_)
           : absl::InvalidArgumentError(
                 "GetServerInfo takes one request message");
    if (!status.ok()) {
      const grpc::Status answer = ToGrpcStatus(status);
      env_->metrics->Finished(Method::kGetServerInfo, answer.error_code());
      Finish(answer);
      return;
    }
    v1::GetServerInfoResponse info =
        DescribeServer(env_->engine->device(), env_->bounds);
    info.set_uptime_ns(std::chrono::duration_cast<std::chrono::nanoseconds>(
                           Clock::now() - server_started_)
                           .count());
    reply_ = Serialized(info);
    env_->metrics->Finished(Method::kGetServerInfo, grpc::StatusCode::OK);
    StartWriteAndFinish(&reply_, grpc::WriteOptions(), grpc::Status::OK);
  }

  void OnDone() override { delete this; }

 private:
  CallEnvironment* const env_;
  const Clock::time_point server_started_;
  grpc::ByteBuffer message_;
  grpc::ByteBuffer reply_;
};

// Deletes itself. Refuses a method that does not exist.
class UnknownCall final : public grpc::ServerGenericBidiReactor {
 public:
  UnknownCall(CallEnvironment* environment, const std::string& method) {
    environment->metrics->Started(Method::kOther);
    environment->metrics->Finished(Method::kOther,
                                   grpc::StatusCode::UNIMPLEMENTED);
    Finish(grpc::Status(grpc::StatusCode::UNIMPLEMENTED,
                        "there is no method " + method));
  }
  void OnDone() override { delete this; }
};

}  // namespace

AttentionService::AttentionService(CallEnvironment* environment)
    : env_(environment) {}

grpc::ServerGenericBidiReactor* AttentionService::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  if (context->method() == kAttend) return StartAttendCall(env_, context);
  if (context->method() == kGetServerInfo) return new InfoCall(env_, started_);
  return new UnknownCall(env_, context->method());
}

std::unique_ptr<grpc::Service> MakeNamedService() {
  using Service = v1::AttentionService;
  return std::make_unique<Service::WithGenericMethod_Attend<
      Service::WithGenericMethod_GetServerInfo<Service::Service>>>();
}

}  // namespace attendant::server
